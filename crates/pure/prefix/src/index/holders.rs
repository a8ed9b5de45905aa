//! Replicas that have a number.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, VecDeque};

use spillway_types::Holder;

use super::pairs::{NO_PAIR, Pairs};

/// Number of replicas that can have a number, so that their count fits 16 bits.
const NUMBERS: usize = 65_535;

/// State of one replica, apart from its blocks.
#[derive(Debug)]
pub(super) struct HolderEntry {
    pub(super) state: HolderValidity,
    /// Most recently used record; [`NO_PAIR`] if there is none.
    pub(super) newest: u32,
    /// Least recently used record; [`NO_PAIR`] if there is none.
    pub(super) oldest: u32,
    /// Number of records.
    pub(super) blocks: u32,
    /// Capacity of the cache in blocks, as configured or reported.
    pub(super) capacity_told: u32,
    /// Capacity of the cache in blocks, as replies show it; at most the reported one.
    pub(super) capacity: u32,
    /// Stamp up to which inserted blocks have been computed, since a later request was answered.
    pub(super) answered: u64,
    /// Stamp of the last request sent.
    pub(super) sent: u64,
    /// Replies in a row whose blocks the next request did not find cached.
    pub(super) replies_missed: u8,
    is_aging: bool,
}

/// Validity of the records of a replica.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum HolderValidity {
    // Free => Live
    Free,
    // Live => (Flushed | Leaving)
    Live,
    /// Records up to this stamp are void and wait for removal.
    // Flushed => (Live | Flushed | Leaving)
    Flushed(u64),
    /// All records are void; after their removal the number is free.
    // Leaving => Free
    Leaving,
}

/// All replicas, by number.
#[derive(Debug)]
pub(super) struct Holders {
    holder_entries: Vec<HolderEntry>,
    numbers: BTreeMap<u64, Holder>,
    /// Numbers of replicas that are gone; the number that has been free longest comes first.
    free: VecDeque<u16>,
    /// Replicas by the stamp of their oldest record, or of an older record that they had before.
    aging: BinaryHeap<Reverse<(u64, u16)>>,
    capacity_default: u32,
}

impl Holders {
    pub(super) fn new(capacity_default: u32) -> Self {
        Self {
            holder_entries: Vec::new(),
            numbers: BTreeMap::new(),
            free: VecDeque::new(),
            aging: BinaryHeap::new(),
            capacity_default: capacity_default.max(1),
        }
    }

    /// Returns the number of numbers ever given out.
    pub(super) fn universe(&self) -> u16 {
        self.holder_entries.len() as u16
    }

    /// Returns the number of replicas that have a number.
    pub(super) fn len(&self) -> usize {
        self.numbers.len()
    }

    pub(super) fn bytes(&self) -> usize {
        // The nodes of a map are two thirds full on average.
        let numbers = self.numbers.len() * (size_of::<(u64, Holder)>() * 3 / 2);
        self.holder_entries.capacity() * size_of::<HolderEntry>()
            + numbers
            + self.free.capacity() * size_of::<u16>()
            + self.aging.capacity() * size_of::<Reverse<(u64, u16)>>()
    }

    /// Returns the number of an identity; a new identity gets a number. `None` if no number is
    /// free.
    pub(super) fn number(&mut self, identity: u64) -> Option<Holder> {
        if let Some(holder) = self.numbers.get(&identity) {
            return Some(*holder);
        }
        // Old views may still know a number that was used before, so unused numbers come first.
        let number = if self.holder_entries.len() < NUMBERS {
            self.holder_entries.push(HolderEntry::new(self.capacity_default));
            self.holder_entries.len() as u16 - 1
        } else {
            self.free.pop_front()?
        };
        self.holder_entries[usize::from(number)] = HolderEntry::new(self.capacity_default);
        self.numbers.insert(identity, Holder(number));
        Some(Holder(number))
    }

    /// Removes the identity of a number. Returns true if it had one.
    pub(super) fn forget(&mut self, holder: Holder) -> bool {
        let before = self.numbers.len();
        self.numbers.retain(|_, number| *number != holder);
        self.numbers.len() < before
    }

    /// Frees the number of a replica that is gone.
    pub(super) fn release(&mut self, holder: u16) {
        self.holder_entries[usize::from(holder)].state = HolderValidity::Free;
        self.free.push_back(holder);
    }

    /// Returns the state of a replica that has a number and is not leaving.
    pub(super) fn live(&mut self, holder: Holder) -> Option<&mut HolderEntry> {
        let holder_entry = self.holder_entries.get_mut(holder.index())?;
        matches!(holder_entry.state, HolderValidity::Live | HolderValidity::Flushed(_))
            .then_some(holder_entry)
    }

    pub(super) fn holder_entry(&mut self, holder: u16) -> &mut HolderEntry {
        &mut self.holder_entries[usize::from(holder)]
    }

    /// Notes that a replica has records, so that its oldest one can be found.
    pub(super) fn note_aging(&mut self, holder: u16, stamp: u64) {
        let holder_entry = &mut self.holder_entries[usize::from(holder)];
        if !holder_entry.is_aging {
            holder_entry.is_aging = true;
            self.aging.push(Reverse((stamp, holder)));
        }
    }

    /// Returns the least recently used record of all replicas.
    pub(super) fn oldest(&mut self, pairs: &Pairs) -> Option<u32> {
        loop {
            let Reverse((stamp, holder)) = *self.aging.peek()?;
            let holder_entry = &mut self.holder_entries[usize::from(holder)];
            if holder_entry.oldest == NO_PAIR {
                holder_entry.is_aging = false;
                self.aging.pop();
                continue;
            }
            let actual = pairs.at(holder_entry.oldest).stamp();
            if actual == stamp {
                return Some(holder_entry.oldest);
            }
            // A replica's oldest record only gets younger, so an outdated entry comes too early,
            // never too late.
            self.aging.pop();
            self.aging.push(Reverse((actual, holder)));
        }
    }

    /// Empties the record lists of all replicas; numbers and capacities stay.
    pub(super) fn clear_chains(&mut self) {
        self.aging.clear();
        for holder_entry in &mut self.holder_entries {
            (holder_entry.newest, holder_entry.oldest, holder_entry.blocks) = (NO_PAIR, NO_PAIR, 0);
            holder_entry.is_aging = false;
        }
    }
}

impl HolderEntry {
    fn new(capacity: u32) -> Self {
        Self {
            state: HolderValidity::Live,
            newest: NO_PAIR,
            oldest: NO_PAIR,
            blocks: 0,
            capacity_told: capacity,
            capacity,
            answered: 0,
            sent: 0,
            replies_missed: 0,
            is_aging: false,
        }
    }

    /// Raises the assumed capacity by one part in `parts`, up to the reported one: the cache seems
    /// to hold what is expected.
    pub(super) fn recover(&mut self, parts: u32) {
        self.capacity = (self.capacity + self.capacity / parts + 1).min(self.capacity_told);
    }
}
