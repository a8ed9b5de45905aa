//! The writer's side of the table: who holds a block.

use std::sync::Arc;

use super::crowds::{Crowds, NoRoom};
use super::pair_map::PairMap;
use super::pairs::Pairs;
use super::payload::{Crowd, Holding};
use super::shared::Shared;
use super::table::Table;

/// Homes of the smallest table.
const HOMES_MIN: usize = 1_024;

/// All blocks with their holders, and where the record of each is.
#[derive(Debug)]
pub(super) struct Blocks {
    table: Arc<Table>,
    shared: Arc<Shared>,
    crowds: Crowds,
    /// Records of blocks that several replicas hold; the table has those of the others.
    map: PairMap,
    len: usize,
}

impl Blocks {
    pub(super) fn new(shared: Arc<Shared>) -> Self {
        let crowds = Crowds::new(Arc::clone(&shared.crowds));
        Self { table: shared.table.load_full(), shared, crowds, map: PairMap::new(), len: 0 }
    }

    /// The table that an empty index begins with.
    pub(super) fn smallest_table() -> Table {
        Table::new(HOMES_MIN)
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Bytes of all but the sets.
    pub(super) fn bytes(&self) -> usize {
        Table::bytes(self.table.homes()) + self.map.bytes()
    }

    pub(super) fn crowd_bytes(&self) -> usize {
        self.crowds.bytes()
    }

    pub(super) fn contains(&self, key: u64) -> bool {
        !self.table.find(key).1.is_nobody()
    }

    /// Begins to load what finding a block will read.
    pub(super) fn warm(&self, key: u64) {
        self.table.warm(key);
    }

    /// The record of a block at a replica.
    pub(super) fn find(&self, pairs: &Pairs, key: u64, holder: u16) -> Option<u32> {
        match self.table.find(key).1.holding() {
            Holding::Nobody => None,
            Holding::One { holder: one, pair } => (one == holder).then_some(pair),
            Holding::Crowd(_) => self.map.find(pairs, key, holder),
        }
    }

    /// Adds a record that is not there, by its own key and holder.
    pub(super) fn add(&mut self, pairs: &Pairs, pair: u32, universe: u16) -> Result<(), NoRoom> {
        let (key, holder) = (pairs.at(pair).key, pairs.at(pair).holder);
        let (at, payload) = self.table.find(key);
        match payload.holding() {
            Holding::Nobody => {
                if !self.table.insert(key, Holding::One { holder, pair }) {
                    return Err(NoRoom);
                }
                self.len += 1;
                return Ok(());
            }
            Holding::One { holder: other, pair: other_pair } => {
                let crowd = self.crowds.pair([other, holder], universe)?;
                self.table.replace(at, Holding::Crowd(crowd));
                self.map.insert(pairs, other_pair);
            }
            Holding::Crowd(crowd) => {
                let grown = self.crowds.with(crowd, holder, universe)?;
                self.settle(at, crowd, grown);
            }
        }
        self.map.insert(pairs, pair);
        Ok(())
    }

    /// Removes a record; it must still have its key and holder.
    pub(super) fn remove(&mut self, pairs: &Pairs, pair: u32, universe: u16) {
        let (key, holder) = (pairs.at(pair).key, pairs.at(pair).holder);
        let (at, payload) = self.table.find(key);
        match payload.holding() {
            Holding::Nobody => {}
            Holding::One { .. } => {
                self.table.remove(at);
                self.len -= 1;
            }
            Holding::Crowd(crowd) => {
                self.map.remove(pairs, key, holder);
                let left = self.crowds.without(crowd, holder);
                if left.count == 1 {
                    self.dissolve(pairs, at, left, key);
                } else {
                    self.table.recount(at, Holding::Crowd(left));
                    if let Some(smaller) = self.crowds.shrunk(left, universe) {
                        self.settle(at, left, smaller);
                    }
                }
            }
        }
    }

    /// Bytes that adding one record to the table and the map would take; 0 if they have room.
    pub(super) fn growth_bytes(&self) -> usize {
        let table = if self.is_full() {
            Table::bytes(self.grown_homes()) - Table::bytes(self.table.homes())
        } else {
            0
        };
        // One that joins another becomes two in the map.
        table + self.map.growth_bytes()
    }

    /// Makes room in the table, if it has too little.
    pub(super) fn grow(&mut self) {
        if !self.is_full() {
            return;
        }
        let homes = self.grown_homes();
        if let Some(grown) = self.table.grown_to(homes) {
            self.publish(grown);
        }
    }

    /// Removes everything and gives the table's memory back.
    pub(super) fn clear(&mut self) {
        self.publish(Self::smallest_table());
        self.crowds.clear();
        self.map = PairMap::new();
        self.len = 0;
    }

    /// Readers see `table` from now on, and know that what the last one says may be wrong.
    fn publish(&mut self, table: Table) {
        let table = Arc::new(table);
        self.shared.table.store(Arc::clone(&table));
        std::mem::replace(&mut self.table, table).retire();
    }

    fn is_full(&self) -> bool {
        // 85 %: searches of 4 slots on average.
        (self.len + 1) * 20 > self.table.homes() * 17
    }

    fn grown_homes(&self) -> usize {
        // A fifth at a time: 19 to 23 bytes a block, where doubling would have up to 38.
        self.table.homes() + self.table.homes() / 5
    }

    /// Says where a block's set is now, and frees where it was.
    fn settle(&mut self, at: usize, before: Crowd, after: Crowd) {
        if (before.start, before.class) == (after.start, after.class) {
            self.table.recount(at, Holding::Crowd(after));
        } else {
            self.table.replace(at, Holding::Crowd(after));
            self.crowds.free(before);
        }
    }

    /// A set of one becomes a single holder.
    fn dissolve(&mut self, pairs: &Pairs, at: usize, crowd: Crowd, key: u64) {
        let mut last = None;
        self.crowds.read(crowd).for_each(|holder| last = Some(holder));
        let pair = last.and_then(|holder| self.map.find(pairs, key, holder));
        let (Some(holder), Some(pair)) = (last, pair) else { return };
        self.table.replace(at, Holding::One { holder, pair });
        self.map.remove(pairs, key, holder);
        self.crowds.free(crowd);
    }
}
