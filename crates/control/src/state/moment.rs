//! When an entry counts as made, and which clocks it moves.

use crate::rules::tokens;
use crate::state::turn::proposing_node;
use crate::state::{ClusterClock, RegionClock, State};
use crate::wire::WIRE_MEMBERS;
use crate::{Entry, Outcome};

/// The time of one entry, and what to put back if the entry is not carried out.
#[derive(Debug)]
pub(super) struct Moment {
    /// When the entry counts as made, milliseconds since 1970.
    pub(super) now_ms: u64,
    /// None as long as older nodes are in the cluster: then every entry moves the clocks.
    kept: Option<Kept>,
}

/// The clocks before an entry, and the cluster's clock after it.
#[derive(Debug)]
struct Kept {
    stamp_ms: u64,
    region: Option<RegionClock>,
    clock: ClusterClock,
    back_ms: u64,
}

impl Moment {
    /// The time up to which earlier entries have moved the clock, milliseconds since 1970.
    pub(super) fn settled_ms(&self) -> u64 {
        self.kept.as_ref().map_or(self.now_ms, |kept| kept.stamp_ms)
    }
}

impl State {
    /// Whether nodes that join by token sign, see [`crate::JoinText::sign`]. They present
    /// [`crate::JoinText::proof`] otherwise, since a node of the cluster knows no signatures.
    #[must_use]
    pub fn takes_signatures(&self) -> bool {
        self.is_guarded()
    }

    /// Whether all nodes know of the rules of wire version 5. Once they do, older nodes can't join.
    pub(crate) fn is_guarded(&self) -> bool {
        self.ledger.cluster.is_some() && self.wire_oldest() >= WIRE_MEMBERS
    }

    /// Goes on to the entry at `index`, as if it were carried out. Only a member's stamp counts.
    pub(super) fn begin(&mut self, index: u64, entry: &Entry) -> Moment {
        let member = proposing_node(&self.records, &entry.proposer);
        self.ledger.applied = index;
        let region = self.ledger.clocks.get(&entry.proposer.region).copied();
        if member.is_some() {
            self.ledger.advance_region(entry);
        }
        if !self.is_guarded() {
            self.ledger.stamp_ms = self.ledger.stamp_ms.max(entry.stamp_ms);
            return Moment { now_ms: self.ledger.stamp_ms, kept: None };
        }
        self.ledger.wire_used = self.ledger.wire_used.max(WIRE_MEMBERS);
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

    /// Moves the cluster's clock if the entry was carried out, puts all clocks back if not. Returns the
    /// time to write down.
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

    /// Puts the clocks back: the entry changed nothing. Returns the time to write down.
    pub(super) fn put_back(&mut self, moment: Moment, entry: &Entry) -> u64 {
        let Some(Kept { stamp_ms, region, .. }) = moment.kept else { return moment.now_ms };
        self.ledger.stamp_ms = stamp_ms;
        if let Some(clock) = region {
            self.ledger.clocks.insert(entry.proposer.region.clone(), clock);
        }
        self.clock.time_of(entry.stamp_ms)
    }
}
