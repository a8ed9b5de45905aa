//! Reader of the fine index.

use std::sync::Arc;

use super::kept;
use super::payload::{Holding, Payload};
use super::shared::IndexShared;
use super::table::BlockTable;
use crate::Matches;
use crate::descend::{Probes, descend};

/// Largest number of probes of one look-up. 64 blocks that each end at another replica take 71; a
/// prompt of 4,096 blocks with a hundred such ends is found completely.
const PROBES_MAX: u32 = 2_048;
/// Number of times that a look-up restarts because the table was replaced during it.
const TRIES: usize = 3;
/// Number of times that a set is read again because it changed during the read.
const READS_MAX: usize = 4;

/// Reader of a [`FineIndex`](crate::FineIndex), usable while it is written. Cheap to clone.
#[derive(Clone, Debug)]
pub struct IndexReader {
    shared: Arc<IndexShared>,
}

impl IndexReader {
    pub(super) fn new(shared: Arc<IndexShared>) -> Self {
        Self { shared }
    }

    /// Finds the number of leading blocks of `chain` at each replica, of more than 64 up to a 32nd too
    /// few; earlier content of `matches` is lost.
    ///
    /// Never waits for the writer. Each result was true at some moment of the look-up, or is too
    /// small where the writer was just moving the block. Allocates nothing once `matches` has been
    /// used with as many replicas.
    pub fn lookup(&self, chain: &[u64], matches: &mut Matches) {
        for _ in 0..TRIES {
            // Read before the table, so that blocks flushed before the look-up began are not seen.
            self.shared.copy_hidden(&mut matches.hidden);
            if self.lookup_in(&self.shared.table.load(), chain, matches) {
                return;
            }
        }
        matches.clear();
    }

    /// Returns true if any replica holds the block. Of a block without a record it is never known.
    #[must_use]
    pub fn is_held(&self, block: u64) -> bool {
        match self.shared.table.load().find(block).1.holding() {
            Holding::Nobody => false,
            Holding::One { holder, .. } => !self.shared.is_hidden(holder),
            Holding::HolderSet(_) => true,
        }
    }
}

impl IndexReader {
    /// Looks up in one table. Returns true if the results are valid: when a new table takes over,
    /// the words of sets may go to other blocks without a trace in the old table.
    pub(super) fn lookup_in(
        &self,
        table: &BlockTable,
        chain: &[u64],
        matches: &mut Matches,
    ) -> bool {
        matches.begin(self.shared.words());
        let mut lookup = Lookup { shared: &self.shared, table, chain, matches, probes: 0 };
        descend(&mut lookup, kept::count(chain.len()));
        !table.is_retired()
    }

    #[cfg(test)]
    pub(super) fn table(&self) -> Arc<BlockTable> {
        self.shared.table.load_full()
    }
}

/// Look-up in progress.
struct Lookup<'a> {
    shared: &'a IndexShared,
    table: &'a BlockTable,
    chain: &'a [u64],
    matches: &'a mut Matches,
    probes: u32,
}

impl Lookup<'_> {
    /// Returns the hash of a block that has a record, and its depth.
    fn key(&self, index: usize) -> (u64, u32) {
        let depth = kept::at(index).depth;
        (self.chain[depth - 1], depth as u32)
    }
}

impl Probes for Lookup<'_> {
    type Found = Payload;

    fn warm(&self, index: usize) {
        self.table.warm(self.key(index).0);
    }

    fn warm_emit(&self, found: Payload) {
        if let Holding::HolderSet(holder_set) = found.holding() {
            self.shared.holder_sets.warm(holder_set);
        }
    }

    fn probe(&mut self, index: usize) -> Option<Payload> {
        self.probes += 1;
        (self.probes <= PROBES_MAX).then(|| self.table.find(self.key(index).0).1)
    }

    fn is_none(found: Payload) -> bool {
        found.is_nobody()
    }

    fn is_same(left: Payload, right: Payload) -> bool {
        left.count() == right.count()
    }

    fn emit(&mut self, index: usize) {
        let (key, depth) = self.key(index);
        for _ in 0..READS_MAX {
            let (at, payload) = self.table.find(key);
            let holder_set = match payload.holding() {
                Holding::Nobody => return,
                Holding::One { holder, .. } => return self.matches.note_one(depth, holder),
                Holding::HolderSet(holder_set) => holder_set,
            };
            self.shared.holder_sets.read(holder_set).copy_to(&mut self.matches.words);
            let after = self.table.at(at);
            // An unchanged version proves that the words belong to this block.
            if after.version() == payload.version() && !after.is_nobody() {
                return self.matches.note_holder_set(depth, holder_set);
            }
        }
    }
}
