//! The replicas that have a number.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, VecDeque};

use spillway_types::Holder;

use super::pairs::{NO_PAIR, Pairs};

/// Numbers from 0 to one below this are given out, so that their count fits 16 bits.
const NUMBERS: usize = 65_535;

/// What is known of one replica beside its blocks.
#[derive(Debug)]
pub(super) struct Lane {
    pub(super) state: LaneState,
    /// Its most recently used record.
    pub(super) newest: u32,
    /// Its least recently used record.
    pub(super) oldest: u32,
    /// Number of its records.
    pub(super) blocks: u32,
    /// Blocks that its cache holds by what was said.
    pub(super) capacity_told: u32,
    /// Blocks that its cache holds by what replies show; at most as many as told.
    pub(super) capacity: u32,
    /// Whatever was inserted up to this stamp has been computed: a later request was answered.
    pub(super) answered: u64,
    is_aging: bool,
}

/// Whether what is recorded of a replica counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LaneState {
    // Free => Live
    Free,
    // Live => (Flushed | Leaving)
    Live,
    /// Records up to this stamp are void and wait for removal.
    // Flushed => (Live | Flushed | Leaving)
    Flushed(u64),
    /// All records are void; then the number is free.
    // Leaving => Free
    Leaving,
}

/// All replicas, by number.
#[derive(Debug)]
pub(super) struct Holders {
    lanes: Vec<Lane>,
    numbers: BTreeMap<u64, Holder>,
    /// Numbers that replicas had which are gone; the one that has been free longest comes first.
    free: VecDeque<u16>,
    /// Replicas by the stamp of their oldest record, or of an older one that they had.
    aging: BinaryHeap<Reverse<(u64, u16)>>,
    capacity_default: u32,
}

impl Holders {
    pub(super) fn new(capacity_default: u32) -> Self {
        Self {
            lanes: Vec::new(),
            numbers: BTreeMap::new(),
            free: VecDeque::new(),
            aging: BinaryHeap::new(),
            capacity_default: capacity_default.max(1),
        }
    }

    /// Numbers ever given out.
    pub(super) fn universe(&self) -> u16 {
        self.lanes.len() as u16
    }

    /// Replicas that have a number.
    pub(super) fn len(&self) -> usize {
        self.numbers.len()
    }

    pub(super) fn bytes(&self) -> usize {
        // A map's nodes are two thirds full on average.
        let numbers = self.numbers.len() * (size_of::<(u64, Holder)>() * 3 / 2);
        self.lanes.capacity() * size_of::<Lane>()
            + numbers
            + self.free.capacity() * size_of::<u16>()
            + self.aging.capacity() * size_of::<Reverse<(u64, u16)>>()
    }

    /// The number of an identity, a new one if it has none.
    pub(super) fn number(&mut self, identity: u64) -> Option<Holder> {
        if let Some(holder) = self.numbers.get(&identity) {
            return Some(*holder);
        }
        // A number that was used before may still be known to an old view: new ones come first.
        let number = if self.lanes.len() < NUMBERS {
            self.lanes.push(Lane::new(self.capacity_default));
            self.lanes.len() as u16 - 1
        } else {
            self.free.pop_front()?
        };
        self.lanes[usize::from(number)] = Lane::new(self.capacity_default);
        self.numbers.insert(identity, Holder(number));
        Some(Holder(number))
    }

    /// Takes an identity's number away; whether it had it.
    pub(super) fn forget(&mut self, holder: Holder) -> bool {
        let before = self.numbers.len();
        self.numbers.retain(|_, number| *number != holder);
        self.numbers.len() < before
    }

    /// Makes the number of a replica that is gone free for others.
    pub(super) fn release(&mut self, holder: u16) {
        self.lanes[usize::from(holder)].state = LaneState::Free;
        self.free.push_back(holder);
    }

    /// A replica that has a number and is not leaving.
    pub(super) fn live(&mut self, holder: Holder) -> Option<&mut Lane> {
        let lane = self.lanes.get_mut(holder.index())?;
        matches!(lane.state, LaneState::Live | LaneState::Flushed(_)).then_some(lane)
    }

    pub(super) fn lane(&mut self, holder: u16) -> &mut Lane {
        &mut self.lanes[usize::from(holder)]
    }

    /// Notes that a replica has records, so that its oldest can be found.
    pub(super) fn note_aging(&mut self, holder: u16, stamp: u64) {
        let lane = &mut self.lanes[usize::from(holder)];
        if !lane.is_aging {
            lane.is_aging = true;
            self.aging.push(Reverse((stamp, holder)));
        }
    }

    /// The least recently used record of all.
    pub(super) fn oldest(&mut self, pairs: &Pairs) -> Option<u32> {
        loop {
            let Reverse((stamp, holder)) = *self.aging.peek()?;
            let lane = &mut self.lanes[usize::from(holder)];
            if lane.oldest == NO_PAIR {
                lane.is_aging = false;
                self.aging.pop();
                continue;
            }
            let actual = pairs.at(lane.oldest).stamp();
            if actual == stamp {
                return Some(lane.oldest);
            }
            // A replica's oldest record only gets younger: what was noted comes too early.
            self.aging.pop();
            self.aging.push(Reverse((actual, holder)));
        }
    }

    /// Empties all chains; numbers and capacities stay.
    pub(super) fn clear_chains(&mut self) {
        self.aging.clear();
        for lane in &mut self.lanes {
            (lane.newest, lane.oldest, lane.blocks) = (NO_PAIR, NO_PAIR, 0);
            lane.is_aging = false;
        }
    }
}

impl Lane {
    fn new(capacity: u32) -> Self {
        Self {
            state: LaneState::Live,
            newest: NO_PAIR,
            oldest: NO_PAIR,
            blocks: 0,
            capacity_told: capacity,
            capacity,
            answered: 0,
            is_aging: false,
        }
    }

    /// The cache seems to hold what is expected: it is taken to hold one part in `parts` more.
    pub(super) fn recover(&mut self, parts: u32) {
        self.capacity = (self.capacity + self.capacity / parts + 1).min(self.capacity_told);
    }
}
