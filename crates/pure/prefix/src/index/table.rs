//! Table from block hash to holders, with one writer and many readers.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use super::payload::{Holding, Payload};

/// Number of slots behind the last home slot, for the cluster at the end. At the allowed load,
/// keyed hashes form no longer run of full slots.
const TAIL_SLOTS: usize = 256;
/// Number of times that a reader looks again at a slot that changes during the read.
const LOOKS_MAX: u32 = 8;

/// Hash table in open addressing, with linear probing in the order of the (mixed) hashes. A search
/// for an absent block ends as soon as one for a present block. An insert moves the blocks up to the
/// next free slot: at most 8 on average at 75 % load, and 22 at 85 %.
///
/// The writer changes a slot in three steps: empty, hash, content with the next version. A reader
/// reads content, hash and content again, and believes them if the version is equal. While
/// neighbours move, a reader may miss a block for a moment; it never sees the holder of another
/// block.
#[derive(Debug)]
pub(super) struct BlockTable {
    slots: Box<[Slot]>,
    homes: usize,
    /// True after a successor took over: the content may no longer be valid.
    is_retired: AtomicBool,
}

/// Two words in one cache line.
#[derive(Debug, Default)]
#[repr(align(16))]
struct Slot {
    mixed: AtomicU64,
    payload: AtomicU64,
}

impl BlockTable {
    pub(super) fn new(homes: usize) -> Self {
        let slots = (0..homes + TAIL_SLOTS).map(|_| Slot::default()).collect();
        Self { slots, homes, is_retired: AtomicBool::new(false) }
    }

    /// Returns a larger table with the same content; `None` if a cluster found no room in it.
    pub(super) fn grown_to(&self, homes: usize) -> Option<Self> {
        let grown = Self::new(homes);
        let mut free = 0;
        for slot in &self.slots {
            let payload = slot.load();
            if payload.is_nobody() {
                continue;
            }
            let mixed = slot.mixed.load(Ordering::Relaxed);
            // Slots are in the order of hashes, so each goes to its home or to the next free slot.
            let at = grown.home(mixed).max(free);
            grown.slots.get(at)?.put(mixed, payload);
            free = at + 1;
        }
        Some(grown)
    }

    pub(super) fn homes(&self) -> usize {
        self.homes
    }

    /// Returns the bytes of a table with this number of home slots.
    pub(super) fn bytes(homes: usize) -> usize {
        (homes + TAIL_SLOTS) * size_of::<Slot>()
    }

    pub(super) fn retire(&self) {
        self.is_retired.store(true, Ordering::Release);
    }

    pub(super) fn is_retired(&self) -> bool {
        self.is_retired.load(Ordering::Acquire)
    }

    /// Starts to load the memory that [`BlockTable::find`] reads.
    pub(super) fn warm(&self, key: u64) {
        if let Some(slot) = self.slots.get(self.home(mix(key))) {
            // Nothing depends on the value, so the processor does not wait for it.
            std::hint::black_box(slot.payload.load(Ordering::Relaxed));
        }
    }

    /// Returns the slot of a block and its content; an empty payload if the block is absent.
    pub(super) fn find(&self, key: u64) -> (usize, Payload) {
        let mixed = mix(key);
        let (mut at, mut looks) = (self.home(mixed), 0);
        while let Some(slot) = self.slots.get(at) {
            let before = slot.load();
            if before.is_nobody() {
                break;
            }
            let found = slot.mixed.load(Ordering::Acquire);
            if found < mixed {
                at += 1;
                continue;
            }
            if found > mixed {
                break;
            }
            let payload = slot.load();
            if payload.version() == before.version() && !payload.is_nobody() {
                return (at, payload);
            }
            looks += 1;
            if looks == LOOKS_MAX {
                break;
            }
        }
        (at, Payload::default())
    }

    /// Returns the current content of a slot.
    pub(super) fn at(&self, at: usize) -> Payload {
        self.slots.get(at).map_or_else(Payload::default, Slot::load)
    }

    /// Adds a block that is absent at the slot where [`find`](Self::find) missed it. Returns `false`
    /// if there was no room.
    pub(super) fn insert(&self, at: usize, key: u64, holding: Holding) -> bool {
        let slots = self.slots.get(at..).unwrap_or_default();
        let Some(free) = slots.iter().position(|slot| slot.load().is_nobody()) else {
            return false;
        };
        // Blocks move from the end on, so that a reader finds each block in its old slot or the
        // next one.
        for [from, to] in slots[..=free].array_windows().rev() {
            to.put(from.mixed.load(Ordering::Relaxed), from.load());
        }
        slots[0].put(mix(key), Payload::new(holding, 0));
        true
    }

    /// Replaces the holders of the block in a slot, and counts its version up.
    pub(super) fn replace(&self, at: usize, holding: Holding) {
        let slot = &self.slots[at];
        slot.store(Payload::new(holding, slot.load().version() + 1));
    }

    /// Updates the member count of the block in a slot. The version stays, as the set keeps its
    /// words.
    pub(super) fn recount(&self, at: usize, holding: Holding) {
        let slot = &self.slots[at];
        slot.store(Payload::new(holding, slot.load().version()));
    }

    /// Removes the block in a slot; others may move up.
    pub(super) fn remove(&self, at: usize) {
        let mut hole = &self.slots[at];
        for (at, next) in (at..).zip(&self.slots[at + 1..]) {
            let (payload, mixed) = (next.load(), next.mixed.load(Ordering::Relaxed));
            if payload.is_nobody() || self.home(mixed) > at {
                break;
            }
            hole.put(mixed, payload);
            hole = next;
        }
        hole.store(hole.load().emptied());
    }

    fn home(&self, mixed: u64) -> usize {
        ((u128::from(mixed) * self.homes as u128) >> 64) as usize
    }
}

impl Slot {
    fn load(&self) -> Payload {
        Payload(self.payload.load(Ordering::Acquire))
    }

    fn store(&self, payload: Payload) {
        self.payload.store(payload.0, Ordering::Release);
    }

    /// Replaces the block and its content; the version is the slot's own.
    fn put(&self, mixed: u64, payload: Payload) {
        // Empty first, so that no reader sees the new hash with the old content.
        let emptied = self.load().emptied();
        self.store(emptied);
        self.mixed.store(mixed, Ordering::Release);
        self.store(payload.after(emptied));
    }
}

/// Spreads hashes over the table, even keys that are not made by a hash. Different keys stay
/// different.
fn mix(key: u64) -> u64 {
    // Multiplier: 2^64 divided by the golden ratio. The rotation lets the high bits of the key
    // count too.
    key.rotate_left(32).wrapping_mul(0x9E37_79B9_7F4A_7C15)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(holder: u16) -> Holding {
        Holding::One { holder, pair: u32::from(holder) }
    }

    fn insert(table: &BlockTable, key: u64, holding: Holding) -> bool {
        table.insert(table.find(key).0, key, holding)
    }

    /// Gives all blocks the same home slot: each comes and goes in the slots of the others.
    #[test]
    fn a_reader_never_takes_a_block_for_its_successor_in_the_slot() {
        let (table, stop) = (BlockTable::new(1), AtomicBool::new(false));
        // A block that stays, and moves up for each of the others.
        let after = (3..).find(|key| mix(*key) > mix(1).max(mix(2))).unwrap();
        insert(&table, after, one(3));
        let found = [1_u16, 2].map(|_| AtomicU64::new(0));
        std::thread::scope(|scope| {
            for (own, found) in (1_u16..).zip(&found) {
                let (table, stop) = (&table, &stop);
                scope.spawn(move || {
                    while !stop.load(Ordering::Acquire) {
                        let holding = table.find(u64::from(own)).1.holding();
                        assert!([Holding::Nobody, one(own)].contains(&holding), "{holding:?}");
                        found.fetch_add(u64::from(holding == one(own)), Ordering::Relaxed);
                    }
                });
            }
            let mut round = 0;
            // On a busy machine a reader may begin late.
            let are_served = || found.iter().all(|count| count.load(Ordering::Relaxed) > 0);
            while round < 1_500_000 || !are_served() {
                let key = round % 2 + 1_u64;
                insert(&table, key, one(key as u16));
                table.remove(table.find(key).0);
                round += 1;
            }
            stop.store(true, Ordering::Release);
        });
    }

    #[test]
    fn a_larger_table_says_the_same() {
        let table = BlockTable::new(100);
        (0..85).for_each(|key| assert!(insert(&table, key, one(key as u16))));
        (0..85).step_by(3).for_each(|key| table.remove(table.find(key).0));
        let grown = table.grown_to(120).unwrap();
        for (table, key) in
            [&table, &grown].into_iter().flat_map(|table| (0..90).map(move |key| (table, key)))
        {
            let expected =
                if key % 3 == 0 || key >= 85 { Holding::Nobody } else { one(key as u16) };
            assert_eq!(table.find(key).1.holding(), expected);
        }
    }

    #[test]
    fn a_cluster_that_reaches_the_end_takes_no_more() {
        let table = BlockTable::new(1);
        let taken = (0..1_000).filter(|key| insert(&table, *key, one(1))).count();
        assert_eq!(taken, 1 + TAIL_SLOTS);
        assert!(table.grown_to(2).is_some());
    }
}
