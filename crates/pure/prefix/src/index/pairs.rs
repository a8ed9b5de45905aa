//! Records of the writer: one for each block at each replica, in the order of use.

use super::holders::HolderEntry;

/// Record number that means: no record.
pub(super) const NO_PAIR: u32 = u32::MAX;
/// Number of records that are allocated together: 96 KiB.
const CHUNK_PAIRS: usize = 4_096;

/// Records that are allocated together.
type Chunk = [Pair; CHUNK_PAIRS];

/// Number of bits of a stamp in [`Pair::stamp_high`]: enough for 2^43 chains.
const STAMP_HIGH_BITS: u32 = 12;
const STAMP_HIGH_MASK: u16 = (1 << STAMP_HIGH_BITS) - 1;

/// Record of one block at one replica, and of those before it that have none: 24 bytes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pair {
    pub(super) key: u64,
    stamp_low: u32,
    /// Record of the same replica that was used just after this one.
    newer: u32,
    /// Record of the same replica that was used just before; in a free record, the next free one.
    older: u32,
    /// High bits of the stamp; above them the binary logarithm of the number of blocks.
    stamp_high: u16,
    pub(super) holder: u16,
}

impl Pair {
    /// Returns the stamp of the last use.
    pub(super) fn stamp(&self) -> u64 {
        u64::from(self.stamp_high & STAMP_HIGH_MASK) << 32 | u64::from(self.stamp_low)
    }

    /// Returns the number of blocks that the record represents.
    pub(super) fn span(&self) -> u32 {
        1 << (self.stamp_high >> STAMP_HIGH_BITS)
    }
}

/// All records. Those of each replica form a list from the most to the least recently used.
#[derive(Debug)]
pub(super) struct Pairs {
    chunks: Vec<Box<Chunk>>,
    free: u32,
    used: usize,
}

impl Pairs {
    pub(super) fn new() -> Self {
        Self { chunks: Vec::new(), free: NO_PAIR, used: 0 }
    }

    pub(super) fn len(&self) -> usize {
        self.used
    }

    pub(super) fn bytes(&self) -> usize {
        self.chunks.len() * Self::CHUNK_BYTES + self.chunks.capacity() * size_of::<Box<Chunk>>()
    }

    /// Bytes that are added when no record is free.
    pub(super) const CHUNK_BYTES: usize = CHUNK_PAIRS * size_of::<Pair>();

    /// Returns true if a record is free.
    pub(super) fn has_free(&self) -> bool {
        self.free != NO_PAIR
    }

    /// Allocates one more chunk of free records.
    pub(super) fn grow(&mut self) {
        let first = self.chunks.len() * CHUNK_PAIRS;
        let free = |at: usize| Pair {
            key: 0,
            stamp_low: 0,
            newer: NO_PAIR,
            older: if at + 1 == CHUNK_PAIRS { self.free } else { (first + at + 1) as u32 },
            stamp_high: 0,
            holder: 0,
        };
        self.chunks.push(Box::new(std::array::from_fn(free)));
        self.free = first as u32;
    }

    pub(super) fn at(&self, pair: u32) -> &Pair {
        &self.chunks[pair as usize / CHUNK_PAIRS][pair as usize % CHUNK_PAIRS]
    }

    fn at_mut(&mut self, pair: u32) -> &mut Pair {
        &mut self.chunks[pair as usize / CHUNK_PAIRS][pair as usize % CHUNK_PAIRS]
    }

    /// Takes a free record, which is in no list yet; `None` if none is free.
    pub(super) fn take(&mut self, key: u64, holder: u16, span_log: u8) -> Option<u32> {
        let pair = self.free;
        if pair == NO_PAIR {
            return None;
        }
        self.free = self.at(pair).older;
        let record = self.at_mut(pair);
        (record.key, record.holder) = (key, holder);
        record.stamp_high = u16::from(span_log) << STAMP_HIGH_BITS;
        self.used += 1;
        Some(pair)
    }

    /// Frees a record that is in no list.
    pub(super) fn give_back(&mut self, pair: u32) {
        self.at_mut(pair).older = self.free;
        self.free = pair;
        self.used -= 1;
    }

    /// Inserts a record into its replica's list, just behind `newer`, or as the newest of all.
    pub(super) fn link(
        &mut self,
        holder_entry: &mut HolderEntry,
        pair: u32,
        newer: u32,
        stamp: u64,
    ) {
        let older = if newer == NO_PAIR { holder_entry.newest } else { self.at(newer).older };
        self.restamp(pair, stamp);
        self.join(holder_entry, newer, pair);
        self.join(holder_entry, pair, older);
        holder_entry.blocks += self.at(pair).span();
    }

    /// Sets the stamp of the last use.
    pub(super) fn restamp(&mut self, pair: u32, stamp: u64) {
        let record = self.at_mut(pair);
        let high = (stamp >> 32) as u16 & STAMP_HIGH_MASK;
        record.stamp_low = stamp as u32;
        record.stamp_high = record.stamp_high & !STAMP_HIGH_MASK | high;
    }

    /// Returns true if a record follows `newer` in the list of their replica.
    pub(super) fn is_just_behind(&self, pair: u32, newer: u32) -> bool {
        self.at(pair).newer == newer
    }

    /// Returns the record that was used just after `older` in the list of their replica.
    pub(super) fn just_before(&self, older: u32) -> Option<&Pair> {
        let newer = self.at(older).newer;
        (newer != NO_PAIR).then(|| self.at(newer))
    }

    /// Returns the record that follows `newer` in the list of their replica, if it is of this block.
    pub(super) fn just_behind(&self, newer: u32, key: u64) -> Option<u32> {
        let older = if newer == NO_PAIR { NO_PAIR } else { self.at(newer).older };
        (older != NO_PAIR && self.at(older).key == key).then_some(older)
    }

    /// Moves records that follow each other in their replica's list, from `first` to the older
    /// `last`, just behind `newer`, or to the front.
    pub(super) fn advance(
        &mut self,
        holder_entry: &mut HolderEntry,
        first: u32,
        last: u32,
        newer: u32,
    ) {
        let before = self.at(first).newer;
        if before == newer {
            return;
        }
        let after = self.at(last).older;
        self.join(holder_entry, before, after);
        let older = if newer == NO_PAIR { holder_entry.newest } else { self.at(newer).older };
        self.join(holder_entry, newer, first);
        self.join(holder_entry, last, older);
    }

    /// Removes a record from its replica's list.
    pub(super) fn unlink(&mut self, holder_entry: &mut HolderEntry, pair: u32) {
        let record = *self.at(pair);
        self.join(holder_entry, record.newer, record.older);
        holder_entry.blocks -= record.span();
    }

    fn join(&mut self, holder_entry: &mut HolderEntry, newer: u32, older: u32) {
        match newer {
            NO_PAIR => holder_entry.newest = older,
            _ => self.at_mut(newer).older = older,
        }
        match older {
            NO_PAIR => holder_entry.oldest = newer,
            _ => self.at_mut(older).newer = newer,
        }
    }
}
