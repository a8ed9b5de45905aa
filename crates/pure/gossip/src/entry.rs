//! The lines of a report, as they travel.

use std::fmt::Debug;

use serde::{Deserialize, Serialize};
use spillway_types::{ModelLoad, ShedState};

use crate::name_id::{Fingerprint, NameId};
use crate::own_load::{ModelShare, ReplicaCounts, ReplicaLoad, ReplicaSignals};
use crate::scale::{COUNT, RATE, SHARE, Scale, WAIT};

/// A line of a report.
pub(crate) trait ReportEntry: Clone + Debug + PartialEq + Serialize {
    /// Returns the id of the model or replica that the line is about.
    fn id(&self) -> NameId;

    /// Adds every value of the line to a fingerprint.
    fn print(&self, fingerprint: &mut Fingerprint);

    /// Returns the change since `before`, the line reported last: a share of the value; 1 or more
    /// for a change that must be reported at once, 0 for none.
    fn change_from(&self, before: &Self) -> f32;

    /// Returns the fingerprint of the whole line.
    fn fingerprint(&self) -> u64 {
        let mut fingerprint = Fingerprint::new();
        fingerprint.add(self.id().number());
        self.print(&mut fingerprint);
        fingerprint.finish()
    }
}

/// Value of a change that must be reported at once.
const AT_ONCE: f32 = 1.0;

/// A line of a region's report: one model.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ModelEntry {
    id: NameId,
    queued: u16,
    running: u16,
    capacity: u16,
    rate: u16,
    kv_use: u16,
    wait: u16,
    replicas: u16,
    pending: u16,
    shed: u8,
}

impl ModelEntry {
    pub(crate) fn new(id: NameId, load: &ModelLoad) -> Self {
        Self {
            id,
            queued: COUNT.code(load.queued),
            running: COUNT.code(load.running),
            capacity: COUNT.code_if_known(load.capacity),
            rate: RATE.code_if_known(load.rate_per_s),
            kv_use: SHARE.code_if_known(load.kv_use),
            wait: WAIT.code_if_known(load.wait_ms),
            replicas: u16::try_from(load.replicas).unwrap_or(u16::MAX),
            pending: COUNT.code_if_known(load.pending_tokens),
            shed: match load.shed {
                ShedState::Open => 0,
                ShedState::Reserved => 1,
                ShedState::Shedding => 2,
            },
        }
    }

    pub(crate) fn load(&self) -> ModelLoad {
        ModelLoad {
            // Neither can be unknown; a peer that reports so anyway is not taken for idle.
            queued: COUNT.value(self.queued).unwrap_or(f32::MAX),
            running: COUNT.value(self.running).unwrap_or(f32::MAX),
            capacity: COUNT.value(self.capacity),
            rate_per_s: RATE.value(self.rate),
            kv_use: SHARE.value(self.kv_use),
            wait_ms: WAIT.value(self.wait),
            replicas: self.replicas.into(),
            pending_tokens: COUNT.value(self.pending),
            shed: match self.shed {
                0 => ShedState::Open,
                1 => ShedState::Reserved,
                _ => ShedState::Shedding,
            },
        }
    }
}

impl ReportEntry for ModelEntry {
    fn id(&self) -> NameId {
        self.id
    }

    fn print(&self, fingerprint: &mut Fingerprint) {
        let Self { queued, running, capacity, rate, kv_use, wait, replicas, pending, .. } = *self;
        let codes = [queued, running, capacity, rate, kv_use, wait, replicas, pending];
        codes.iter().for_each(|code| fingerprint.add((*code).into()));
        fingerprint.add(self.shed.into());
    }

    fn change_from(&self, before: &Self) -> f32 {
        if self.shed != before.shed || self.replicas != before.replicas {
            return AT_ONCE;
        }
        // The third number is the usual size: a change of a tenth of it is worth a report.
        [
            change(COUNT, 20.0, before.queued, self.queued),
            change(COUNT, 20.0, before.running, self.running),
            change(COUNT, 20.0, before.capacity, self.capacity),
            change(RATE, 5.0, before.rate, self.rate),
            change(SHARE, 0.5, before.kv_use, self.kv_use),
            change(WAIT, 200.0, before.wait, self.wait),
            change(COUNT, 20_000.0, before.pending, self.pending),
        ]
        .into_iter()
        .fold(0.0, f32::max)
    }
}

/// Returns the change between two codes as a share of the larger value, or of `usual` if that is
/// larger.
fn change(scale: Scale, usual: f32, before: u16, after: u16) -> f32 {
    match (scale.value(before), scale.value(after)) {
        (None, None) => 0.0,
        (Some(before), Some(after)) => (after - before).abs() / before.max(after).max(usual),
        // A number became known or unknown.
        _ => AT_ONCE,
    }
}

/// A line of a report inside a region.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum SiblingEntry {
    /// About a replica.
    Replica(ReplicaEntry),
    /// About a model.
    Share(ShareEntry),
}

impl ReportEntry for SiblingEntry {
    fn id(&self) -> NameId {
        match self {
            Self::Replica(replica) => replica.id,
            Self::Share(share) => share.id,
        }
    }

    fn print(&self, fingerprint: &mut Fingerprint) {
        match self {
            Self::Replica(replica) => replica.print(fingerprint),
            Self::Share(share) => share.print(fingerprint),
        }
    }

    fn change_from(&self, before: &Self) -> f32 {
        match (before, self) {
            (Self::Replica(before), Self::Replica(after)) => after.change_from(before),
            (Self::Share(before), Self::Share(after)) => after.change_from(before),
            // A model has the id that a replica had, or the other way round.
            _ => AT_ONCE,
        }
    }
}

/// Load of one node at one replica, and its claim there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ReplicaEntry {
    pub(crate) id: NameId,
    pub(crate) in_flight: u32,
    pending_tokens: u16,
    pub(crate) claim: ClaimEntry,
    signals: SignalsEntry,
}

impl ReplicaEntry {
    pub(crate) fn new(id: NameId, load: &ReplicaLoad, claim: ClaimEntry) -> Self {
        Self {
            id,
            in_flight: load.in_flight,
            pending_tokens: COUNT.code(load.pending_tokens as f32),
            claim,
            signals: SignalsEntry::new(&load.signals),
        }
    }

    /// Takes over the present numbers of the node's requests and tokens.
    pub(crate) fn set_counts(&mut self, counts: ReplicaCounts) {
        self.in_flight = counts.in_flight;
        self.pending_tokens = COUNT.code(counts.pending_tokens as f32);
    }

    /// Returns the prompt tokens as in [`ReplicaLoad::pending_tokens`].
    pub(crate) fn pending_tokens(&self) -> u32 {
        // An unknown number is not taken for work: requests in flight count beside it.
        COUNT.value(self.pending_tokens).unwrap_or(0.0) as u32
    }

    pub(crate) fn signals(&self) -> ReplicaSignals {
        self.signals.signals()
    }

    fn print(&self, fingerprint: &mut Fingerprint) {
        let ClaimEntry { usable, proposed, wanted } = self.claim;
        let numbers = [self.in_flight, usable, proposed, wanted];
        numbers.iter().for_each(|number| fingerprint.add((*number).into()));
        let SignalsEntry { queued, running, kv_use, age } = self.signals;
        [queued, running, kv_use].iter().for_each(|code| fingerprint.add((*code).into()));
        fingerprint.add(age.into());
        fingerprint.add(self.pending_tokens.into());
    }

    fn change_from(&self, before: &Self) -> f32 {
        if self.claim.binds() != before.claim.binds() {
            return AT_ONCE;
        }
        let in_flight = change_of_count(20.0, before.in_flight, self.in_flight);
        // Having work at all decides which node gets what is left.
        let woke = (before.claim.wanted == 0) != (self.claim.wanted == 0);
        let wanted = if woke && self.claim != ClaimEntry::default() {
            AT_ONCE
        } else {
            change_of_count(20.0, before.claim.wanted, self.claim.wanted)
        };
        let pending = change(COUNT, 1_000.0, before.pending_tokens, self.pending_tokens);
        in_flight.max(pending).max(wanted).max(self.signals.change_from(&before.signals))
    }
}

/// Claim of a node at a replica with a limit; all zero without one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ClaimEntry {
    /// Requests that the node may have in flight.
    pub(crate) usable: u32,
    /// Higher number that the node proposes; 0 if it proposes none.
    pub(crate) proposed: u32,
    /// Requests that the node has for the replica.
    pub(crate) wanted: u32,
}

impl ClaimEntry {
    /// Returns the numbers that others must leave to the node.
    fn binds(self) -> (u32, u32) {
        (self.usable, self.proposed)
    }
}

/// Load of a replica by its own figures.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct SignalsEntry {
    queued: u16,
    running: u16,
    kv_use: u16,
    /// Age of the figures: 0 if unknown, n for up to 125 ms × 2^(n - 1).
    age: u8,
}

/// Longest age of the first step, milliseconds.
const AGE_STEP_MS: u32 = 125;

impl SignalsEntry {
    fn new(signals: &ReplicaSignals) -> Self {
        Self {
            queued: COUNT.code_if_known(signals.queued),
            running: COUNT.code_if_known(signals.running),
            kv_use: SHARE.code_if_known(signals.kv_use),
            age: signals.age_ms.map_or(0, age_code),
        }
    }

    fn signals(self) -> ReplicaSignals {
        let age_ms = self.age.checked_sub(1).map(|steps| {
            AGE_STEP_MS.saturating_mul(1_u32.checked_shl(steps.into()).unwrap_or(u32::MAX))
        });
        ReplicaSignals {
            queued: COUNT.value(self.queued),
            running: COUNT.value(self.running),
            kv_use: SHARE.value(self.kv_use),
            age_ms,
        }
    }

    fn change_from(self, before: &Self) -> f32 {
        // A change of the age alone is worth reporting, but not urgent.
        let age = if self.age == before.age { 0.0 } else { 0.05 };
        [
            age,
            change(COUNT, 20.0, before.queued, self.queued),
            change(COUNT, 20.0, before.running, self.running),
            change(SHARE, 0.5, before.kv_use, self.kv_use),
        ]
        .into_iter()
        .fold(0.0, f32::max)
    }
}

fn age_code(age_ms: u32) -> u8 {
    let steps = age_ms.div_ceil(AGE_STEP_MS).max(1).next_power_of_two().trailing_zeros();
    u8::try_from(steps + 1).unwrap_or(u8::MAX)
}

/// Share of one node in the load of a model.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ShareEntry {
    id: NameId,
    waiting: u32,
    rate: u16,
}

impl ShareEntry {
    pub(crate) fn new(id: NameId, share: &ModelShare) -> Self {
        Self { id, waiting: share.waiting, rate: RATE.code_if_known(share.rate_per_s) }
    }

    pub(crate) fn share(&self) -> ModelShare {
        ModelShare { waiting: self.waiting, rate_per_s: RATE.value(self.rate) }
    }

    fn print(&self, fingerprint: &mut Fingerprint) {
        fingerprint.add(self.waiting.into());
        fingerprint.add(self.rate.into());
    }

    fn change_from(&self, before: &Self) -> f32 {
        let waiting = change_of_count(20.0, before.waiting, self.waiting);
        waiting.max(change(RATE, 5.0, before.rate, self.rate))
    }
}

fn change_of_count(usual: f32, before: u32, after: u32) -> f32 {
    after.abs_diff(before) as f32 / (before.max(after) as f32).max(usual)
}

#[cfg(test)]
#[path = "entry_test.rs"]
mod tests;
