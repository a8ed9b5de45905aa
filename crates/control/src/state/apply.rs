//! The one way in.

use crate::rules;
use crate::state::audit::Seen;
use crate::state::{Done, State, Turn};
use crate::{Digest, Effect, Entry, Fault, Outcome, Refusal, RefusalCode, wire};

impl State {
    /// Applies the entry at `index` of the log. Indices grow, with gaps where the log has entries of
    /// its own. Equal states that apply equal entries are equal again.
    pub fn apply(&mut self, index: u64, entry: &Entry) -> Effect {
        if index <= self.ledger.applied {
            return Effect { outcome: already_applied(self.ledger.applied), changes: Vec::new() };
        }
        let is_guarded = self.is_guarded();
        let moment = self.begin(index, entry);
        self.requests.forget_old(moment.settled_ms());
        if let Some(outcome) = self.requests.recall(entry) {
            self.put_back(moment, entry);
            return Effect { outcome, changes: Vec::new() };
        }
        if let Err(refusal) = rules::members::admit(&self.records, &self.ledger, entry) {
            // Neither the operators' trail nor the memory of requests is for who has no right.
            let outcome = Outcome::from(refusal);
            let stamp_ms = self.put_back(moment, entry);
            self.audit.record_refused(index, stamp_ms, entry, &outcome);
            return Effect { outcome, changes: Vec::new() };
        }
        let effect = self.carry_out(entry);
        let stamp_ms = self.settle(moment, entry, &effect.outcome);
        let seen = Seen { outcome: &effect.outcome, is_change: !effect.changes.is_empty() };
        self.requests.remember((index, stamp_ms), entry, &effect.outcome, is_guarded);
        self.audit.record(index, stamp_ms, entry, seen);
        effect
    }

    /// A fingerprint of everything: equal on all nodes that applied the same entries, also while
    /// some of them are older. Tables keep theirs up to date, so this takes microseconds.
    #[must_use]
    pub fn digest(&self) -> Digest {
        let parts = (&self.ledger, self.records.digests(), self.requests.digest());
        let known_to_all = (parts, self.audit.digests());
        if self.is_wire_1() {
            return Digest::of(&known_to_all).0;
        }
        if self.is_wire_2() {
            return Digest::of(&(known_to_all, self.hot.digest())).0;
        }
        let known_to_3 = (known_to_all, self.hot.digest(), &self.shares);
        if self.is_wire_4() {
            return Digest::of(&known_to_3).0;
        }
        Digest::of(&(known_to_3, &self.clock, self.ledger.is_enforced)).0
    }

    /// Length of all rows together, outcomes and audit included. The hot trie and the shares of
    /// limits have limits of their own, so that what nodes say by themselves never fills the state
    /// up.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.records.bytes() + self.requests.bytes() + self.audit.bytes()
    }

    fn carry_out(&mut self, entry: &Entry) -> Effect {
        if let Err(refusal) = self.admit(entry) {
            return Effect { outcome: Outcome::Refused(refusal), changes: Vec::new() };
        }
        let version = self.ledger.applied;
        let beside = (&mut self.hot, &mut self.shares);
        let mut turn = Turn::new((&mut self.records, &mut self.ledger), beside, entry);
        let outcome = match rules::carry_out(&mut turn) {
            Ok(Done { skipped }) if turn.is_written => Outcome::Applied { version, skipped },
            Ok(Done { skipped: 0 }) => Outcome::Unchanged,
            Ok(Done { skipped }) => Outcome::Refused(all_stale(skipped)),
            Err(fault) => fault.into(),
        };
        let changes = turn.changes;
        if matches!(outcome, Outcome::Applied { .. }) {
            self.ledger.wire_used = self.ledger.wire_used.max(entry.command.since());
        }
        Effect { outcome, changes }
    }

    /// What holds for every command.
    pub(super) fn admit(&self, entry: &Entry) -> Result<(), Refusal> {
        rules::check::actor(&entry.actor)?;
        rules::check::proposer(&entry.proposer)?;
        wire::admits(self, &entry.command)?;
        rules::members::admit(&self.records, &self.ledger, entry)?;
        rules::room::check(&self.records, self.bytes(), (&entry.command, self.is_guarded()))
    }
}

fn already_applied(applied: u64) -> Outcome {
    let cause = format!("entries up to {applied} were applied before");
    Outcome::Refused(Refusal::new(RefusalCode::AlreadyApplied, cause, "apply the next one"))
}

/// Nothing of a batch was about a replica as it is registered now.
pub(super) fn all_stale(skipped: u32) -> Refusal {
    let cause = format!("all {skipped} parts are about replicas or epochs that are not registered");
    Refusal::new(RefusalCode::StaleEpoch, cause, "read the replicas, register those that are gone")
}

impl From<Refusal> for Outcome {
    fn from(refusal: Refusal) -> Self {
        Fault::from(refusal).into()
    }
}
