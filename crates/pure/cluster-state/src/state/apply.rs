//! Application of entries to the state.

use crate::rules;
use crate::state::audit::AuditedEffect;
use crate::state::{Done, State, Turn};
use crate::{ApplyError, CommandError, Digest, Effect, Entry, Outcome, RefusalCode, admits};

impl State {
    /// Applies the entry at `index` of the log. Indices grow, with gaps for entries of the log
    /// itself. Equal states that apply equal entries are equal again.
    pub fn apply(&mut self, index: u64, entry: &Entry) -> Effect {
        // An entry that comes twice must not have its effect twice.
        if index <= self.ledger.applied {
            return Effect { outcome: already_applied(self.ledger.applied), changes: Vec::new() };
        }
        let moment = self.begin(index, entry);
        // Before it is looked up: a retry that comes too late counts as new.
        self.requests.forget_old(moment.settled_ms());
        // A retry gets the first answer and changes no record and no clock.
        if let Some(outcome) = self.requests.recall(entry) {
            self.put_back(moment, entry);
            return Effect { outcome, changes: Vec::new() };
        }
        if let Err(refusal) = rules::members::admit(&self.records, &self.ledger, entry) {
            // A proposer without the right takes no room from operators' audit records or requests.
            let outcome = Outcome::from(refusal);
            let stamp_ms = self.put_back(moment, entry);
            self.audit.record_refused(index, stamp_ms, entry, &outcome);
            return Effect { outcome, changes: Vec::new() };
        }
        let effect = self.carry_out(entry);
        let stamp_ms = self.settle(moment, entry, &effect.outcome);
        let seen =
            AuditedEffect { outcome: &effect.outcome, is_change: !effect.changes.is_empty() };
        self.requests.remember(index, stamp_ms, entry, &effect.outcome);
        self.audit.record(index, stamp_ms, entry, seen);
        effect
    }

    /// Returns a fingerprint of the whole state, equal on all nodes that applied the same entries.
    /// Tables keep theirs up to date, so this takes microseconds.
    #[must_use]
    pub fn digest(&self) -> Digest {
        let tables = (self.records.digests(), self.requests.digest(), self.audit.digests());
        let beside = (self.hot.digest(), &self.shares, &self.clock);
        Digest::of(&(&self.ledger, tables, beside)).0
    }

    /// Returns a fingerprint of what nodes act on. It leaves out remembered outcomes and audit records,
    /// whose words may differ between two versions of the program that agree on everything else.
    #[must_use]
    pub fn facts_digest(&self) -> Digest {
        let beside = (self.hot.digest(), &self.shares, &self.clock);
        Digest::of(&(&self.ledger, self.records.digests(), beside)).0
    }

    /// Returns the length of all rows in bytes, with remembered outcomes and audit records. The hot
    /// trie and the shares of limits have bounds of their own, so that nodes' reports never fill
    /// the state up.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.records.bytes() + self.requests.bytes() + self.audit.bytes()
    }

    fn carry_out(&mut self, entry: &Entry) -> Effect {
        if let Err(refusal) = self.admit(entry) {
            return Effect { outcome: Outcome::Refused(refusal), changes: Vec::new() };
        }
        let version = self.ledger.applied;
        let mut turn =
            Turn::new(&mut self.records, &mut self.ledger, &mut self.hot, &mut self.shares, entry);
        let outcome = match rules::carry_out(&mut turn) {
            Ok(Done { skipped }) if turn.is_written => Outcome::Applied { version, skipped },
            Ok(Done { skipped: 0 }) => Outcome::Unchanged,
            // No part was current, so the proposer must learn that its view is old.
            Ok(Done { skipped }) => Outcome::Refused(all_stale(skipped)),
            Err(fault) => fault.into(),
        };
        let changes = turn.changes;
        // From here on, nodes need this version to read the log and the snapshot.
        if matches!(outcome, Outcome::Applied { .. }) {
            self.ledger.wire_used = self.ledger.wire_used.max(entry.command.since());
        }
        Effect { outcome, changes }
    }

    /// Checks the conditions of all commands: proposer, wire version, membership and room.
    pub(super) fn admit(&self, entry: &Entry) -> Result<(), CommandError> {
        rules::check::actor(&entry.actor)?;
        rules::check::proposer(&entry.proposer)?;
        admits(self, &entry.command)?;
        rules::members::admit(&self.records, &self.ledger, entry)?;
        rules::room::check(&self.records, &entry.command)
    }
}

fn already_applied(applied: u64) -> Outcome {
    let cause = format!("entries up to {applied} were applied before");
    Outcome::Refused(CommandError::new(RefusalCode::AlreadyApplied, cause, "apply the next one"))
}

/// Returns the refusal of a batch without any part about a present registration.
pub(super) fn all_stale(skipped: u32) -> CommandError {
    let cause = format!("all {skipped} parts are about replicas or epochs that are not registered");
    CommandError::new(
        RefusalCode::StaleEpoch,
        cause,
        "read the replicas, register those that are gone",
    )
}

impl From<CommandError> for Outcome {
    fn from(refusal: CommandError) -> Self {
        ApplyError::from(refusal).into()
    }
}
