//! Holders of blocks: the writer's side of the table.

use std::sync::Arc;

use super::holder_sets::{HolderSets, NoRoom};
use super::pair_map::PairMap;
use super::pairs::Pairs;
use super::payload::{HolderSet, Holding};
use super::shared::IndexShared;
use super::table::BlockTable;

/// Number of home slots of the smallest table.
const HOMES_MIN: usize = 1_024;

/// All blocks with their holders, and the location of each writer's record.
#[derive(Debug)]
pub(super) struct Blocks {
    table: Arc<BlockTable>,
    shared: Arc<IndexShared>,
    holder_sets: HolderSets,
    /// Records of blocks with several holders; the table has the record of a single holder.
    map: PairMap,
    len: usize,
}

impl Blocks {
    pub(super) fn new(shared: Arc<IndexShared>) -> Self {
        let holder_sets = HolderSets::new(Arc::clone(&shared.holder_sets));
        Self { table: shared.table.load_full(), shared, holder_sets, map: PairMap::new(), len: 0 }
    }

    /// Returns the table of an empty index.
    pub(super) fn smallest_table() -> BlockTable {
        BlockTable::new(HOMES_MIN)
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Returns the bytes of everything except the sets of replicas.
    pub(super) fn bytes(&self) -> usize {
        BlockTable::bytes(self.table.homes()) + self.map.bytes()
    }

    pub(super) fn holder_set_bytes(&self) -> usize {
        self.holder_sets.bytes()
    }

    pub(super) fn contains(&self, key: u64) -> bool {
        !self.table.find(key).1.is_nobody()
    }

    /// Starts to load the memory that finding a block reads.
    pub(super) fn warm(&self, key: u64) {
        self.table.warm(key);
    }

    /// Returns the record of a block at a replica.
    pub(super) fn find(&self, pairs: &Pairs, key: u64, holder: u16) -> Option<u32> {
        match self.table.find(key).1.holding() {
            Holding::Nobody => None,
            Holding::One { holder: one, pair } => (one == holder).then_some(pair),
            Holding::HolderSet(_) => self.map.find(pairs, key, holder),
        }
    }

    /// Adds a record that is not in the table yet, under the record's own key and holder.
    ///
    /// # Errors
    /// Returns [`NoRoom`] if the table or the memory of the sets is full.
    pub(super) fn add(&mut self, pairs: &Pairs, pair: u32, universe: u16) -> Result<(), NoRoom> {
        let (key, holder) = (pairs.at(pair).key, pairs.at(pair).holder);
        let (at, payload) = self.table.find(key);
        match payload.holding() {
            Holding::Nobody => {
                if !self.table.insert(at, key, Holding::One { holder, pair }) {
                    return Err(NoRoom);
                }
                self.len += 1;
                return Ok(());
            }
            Holding::One { holder: other, pair: other_pair } => {
                // A second holder: the record of the first one moves from the table to the map.
                let holder_set = self.holder_sets.pair([other, holder], universe)?;
                self.table.replace(at, Holding::HolderSet(holder_set));
                self.map.insert(pairs, other_pair);
            }
            Holding::HolderSet(holder_set) => {
                let grown = self.holder_sets.with(holder_set, holder, universe)?;
                self.settle(at, holder_set, grown);
            }
        }
        self.map.insert(pairs, pair);
        Ok(())
    }

    /// Removes a record, which must still have its key and holder.
    pub(super) fn remove(&mut self, pairs: &Pairs, pair: u32, universe: u16) {
        let (key, holder) = (pairs.at(pair).key, pairs.at(pair).holder);
        let (at, payload) = self.table.find(key);
        match payload.holding() {
            Holding::Nobody => {}
            Holding::One { .. } => {
                self.table.remove(at);
                self.len -= 1;
            }
            Holding::HolderSet(holder_set) => {
                self.map.remove(pairs, key, holder);
                let left = self.holder_sets.without(holder_set, holder);
                if left.count == 1 {
                    self.dissolve(pairs, at, left, key);
                } else {
                    self.table.recount(at, Holding::HolderSet(left));
                    if let Some(smaller) = self.holder_sets.shrunk(left, universe) {
                        self.settle(at, left, smaller);
                    }
                }
            }
        }
    }

    /// Returns the bytes that adding one record to table and map would take; 0 if both have room.
    pub(super) fn growth_bytes(&self) -> usize {
        let table = if self.is_full() {
            BlockTable::bytes(self.grown_homes()) - BlockTable::bytes(self.table.homes())
        } else {
            0
        };
        // A record that joins a single one puts two into the map.
        table + self.map.growth_bytes()
    }

    /// Grows the table if it is full.
    pub(super) fn grow(&mut self) {
        if !self.is_full() {
            return;
        }
        let homes = self.grown_homes();
        if let Some(grown) = self.table.grown_to(homes) {
            self.publish(grown);
        }
    }

    /// Removes everything and frees the table's memory.
    pub(super) fn clear(&mut self) {
        self.publish(Self::smallest_table());
        self.holder_sets.clear();
        self.map = PairMap::new();
        self.len = 0;
    }

    /// Publishes `table` to readers and retires the old one, so that readers distrust it.
    fn publish(&mut self, table: BlockTable) {
        let table = Arc::new(table);
        self.shared.table.store(Arc::clone(&table));
        std::mem::replace(&mut self.table, table).retire();
    }

    fn is_full(&self) -> bool {
        (self.len + 1) * 4 > self.table.homes() * 3
    }

    fn grown_homes(&self) -> usize {
        // Growing by an eighth takes 21 to 24 bytes per block; doubling would take up to 43.
        self.table.homes() + self.table.homes() / 8
    }

    /// Sets the set of a block, and frees the old place if the set moved.
    fn settle(&mut self, at: usize, before: HolderSet, after: HolderSet) {
        if (before.start, before.class) == (after.start, after.class) {
            self.table.recount(at, Holding::HolderSet(after));
        } else {
            // The new place is published before the old one is freed, since readers may still use
            // it.
            self.table.replace(at, Holding::HolderSet(after));
            self.holder_sets.free(before);
        }
    }

    /// Turns a set of one replica into a single holder.
    fn dissolve(&mut self, pairs: &Pairs, at: usize, holder_set: HolderSet, key: u64) {
        let mut last = None;
        self.holder_sets.read(holder_set).for_each(|holder| last = Some(holder));
        let pair = last.and_then(|holder| self.map.find(pairs, key, holder));
        let (Some(holder), Some(pair)) = (last, pair) else { return };
        self.table.replace(at, Holding::One { holder, pair });
        self.map.remove(pairs, key, holder);
        self.holder_sets.free(holder_set);
    }
}
