//! Time of one entry, and the clocks that it moves.

use crate::rules::tokens;
use crate::state::turn::proposing_node;
use crate::state::{ClusterClock, RegionClock, State};
use crate::{Entry, Outcome};

/// Time of one entry, with the clocks to put back if the entry is not carried out.
#[derive(Debug)]
pub(super) struct Moment {
    /// Time at which the entry counts as made, milliseconds since 1970.
    pub(super) now_ms: u64,
    /// Clocks to put back; None before the cluster is formed, when every entry moves the clocks.
    kept: Option<Kept>,
}

/// Clocks before an entry, and the cluster's clock after it.
#[derive(Debug)]
struct Kept {
    stamp_ms: u64,
    region: Option<RegionClock>,
    clock: ClusterClock,
    back_ms: u64,
}

impl Moment {
    /// Returns the time to which earlier entries have moved the clock, milliseconds since 1970.
    pub(super) fn settled_ms(&self) -> u64 {
        self.kept.as_ref().map_or(self.now_ms, |kept| kept.stamp_ms)
    }
}

impl State {
    /// Moves index and clocks on to the entry at `index`, as if it were carried out. Only the
    /// stamps of members move a clock.
    pub(super) fn begin(&mut self, index: u64, entry: &Entry) -> Moment {
        let member = proposing_node(&self.records, &entry.proposer);
        self.ledger.applied = index;
        let region = self.ledger.clocks.get(&entry.proposer.region).copied();
        // A proposer that is no member must not move a region's clock.
        if member.is_some() {
            self.ledger.advance_region(entry);
        }
        if self.ledger.cluster.is_none() {
            self.ledger.stamp_ms = self.ledger.stamp_ms.max(entry.stamp_ms);
            return Moment { now_ms: self.ledger.stamp_ms, kept: None };
        }
        // The first entry after the formation starts the clock at the time so far.
        if self.clock.is_blank() {
            self.clock = ClusterClock::starting_at(self.ledger.stamp_ms);
        }
        let stamp_ms = self.ledger.stamp_ms;
        let mut clock = self.clock.clone();
        let (mut now_ms, mut back_ms) = (clock.confirmed_ms(), 0);
        if let Some(node) = member {
            let members = self.records.nodes.keys().copied();
            back_ms = clock.take_in(node, entry.stamp_ms, members);
            now_ms = clock.time_of(entry.stamp_ms);
        }
        self.ledger.stamp_ms = now_ms;
        Moment { now_ms, kept: Some(Kept { stamp_ms, region, clock, back_ms }) }
    }

    /// Keeps the moved clocks if the entry was carried out, and puts them back otherwise. Returns
    /// the time to record for the entry, milliseconds since 1970.
    pub(super) fn settle(&mut self, moment: Moment, entry: &Entry, outcome: &Outcome) -> u64 {
        if !matches!(outcome, Outcome::Applied { .. } | Outcome::Unchanged) {
            return self.put_back(moment, entry);
        }
        if let Some(Kept { clock, back_ms, .. }) = moment.kept {
            self.clock = clock;
            tokens::shorten(&mut self.records, back_ms, self.ledger.applied);
        }
        moment.now_ms
    }

    /// Puts the clocks back, since the entry changed nothing. Returns the time to record for the
    /// entry.
    pub(super) fn put_back(&mut self, moment: Moment, entry: &Entry) -> u64 {
        let Some(Kept { stamp_ms, region, .. }) = moment.kept else { return moment.now_ms };
        self.ledger.stamp_ms = stamp_ms;
        if let Some(clock) = region {
            self.ledger.clocks.insert(entry.proposer.region.clone(), clock);
        }
        // The audit still shows when a refused entry was made.
        self.clock.time_of(entry.stamp_ms)
    }
}
