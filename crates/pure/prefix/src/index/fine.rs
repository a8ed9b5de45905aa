//! Writer of the fine index.

use std::collections::VecDeque;
use std::sync::Arc;

use spillway_types::Holder;

use super::blocks::Blocks;
use super::expectations::{Expectation, Expectations};
use super::holder_set_words::{CHUNK_WORDS, HolderSetWords};
use super::holders::{HolderValidity, Holders};
use super::kept::{self, KeptBlock};
use super::pairs::{NO_PAIR, Pairs};
use super::shared::IndexShared;
use crate::{IndexConfig, IndexReader, IndexStats};

/// Smallest number of bytes that is used, whatever the config has: less is full after a few
/// prompts.
const BYTES_MIN: usize = 1 << 20;
/// Divisor of the bytes for sets of replicas that hold the same block. A block of one replica needs
/// no set. A list takes 2 bytes per replica, a large set one bit.
const HOLDER_SET_SHARE: usize = 8;
/// Divisor of the bytes for beliefs about requests in flight.
const EXPECTATION_SHARE: usize = 64;
/// Number of records of flushed replicas that each call removes: about 100 µs.
pub(super) const SWEEP_PAIRS: usize = 1_024;
/// Largest number of records that are evicted to make room for one.
const EVICTIONS_MAX: usize = 64;

/// Stamps of one chain: the even one of its prompt, and the odd one before that of its reply.
pub(super) const STAMPS: u64 = 2;

/// Index of the blocks that each replica holds, as far as requests and replies have shown.
///
/// A replica's cache is modelled like that of its engine: the least recently used block goes first,
/// and a block goes before the blocks that it continues. All known blocks of a replica are
/// therefore always closed under prefixes. Behind a prompt's first 64 blocks only some have a record,
/// which counts as those before it, too: what is found is too short by less than a 32nd. Two limits
/// evict blocks: the capacity of the replica's cache ([`FineIndex::set_capacity`]), and the bytes of
/// the whole index, which evict the oldest block of all replicas.
///
/// Methods take time in proportion to the chain. Now and then a growing table is copied (10 ms for
/// a million blocks); readers use the old one until then.
#[derive(Debug)]
pub struct FineIndex {
    bytes_max: usize,
    shared: Arc<IndexShared>,
    pub(super) blocks: Blocks,
    pub(super) pairs: Pairs,
    pub(super) holders: Holders,
    pub(super) expectations: Expectations,
    /// Replicas whose void records are not all removed yet.
    sweeping: VecDeque<u16>,
    /// Logical clock of the index: [`STAMPS`] for each chain so far.
    pub(super) stamp: u64,
    pub(super) stats: IndexStats,
}

impl FineIndex {
    /// Creates an empty index and a reader of it.
    #[must_use]
    pub fn new(config: IndexConfig) -> (Self, IndexReader) {
        let bytes_max = config.bytes_max.max(BYTES_MIN);
        let chunks = (bytes_max / HOLDER_SET_SHARE / (CHUNK_WORDS * size_of::<u64>())).max(1);
        // Slots refer to a set by an index of 28 bits.
        let words = Arc::new(HolderSetWords::new(chunks.min((1 << 28) / CHUNK_WORDS)));
        let shared = Arc::new(IndexShared::new(Blocks::smallest_table(), words));
        let index = Self {
            bytes_max,
            blocks: Blocks::new(Arc::clone(&shared)),
            pairs: Pairs::new(),
            holders: Holders::new(config.holder_blocks_default),
            expectations: Expectations::new(bytes_max / EXPECTATION_SHARE),
            sweeping: VecDeque::new(),
            stamp: 0,
            stats: IndexStats::default(),
            shared: Arc::clone(&shared),
        };
        (index, IndexReader::new(shared))
    }

    /// Returns the number of the replica with `identity`. A new replica gets a new number. Returns
    /// `None` if all 65,535 are in use.
    pub fn holder(&mut self, identity: u64) -> Option<Holder> {
        let holder = self.holders.number(identity);
        self.shared.set_universe(self.holders.universe());
        holder
    }

    /// Forgets a replica that is gone for good, and its blocks.
    ///
    /// Its number goes to another replica only after all other numbers were used once.
    pub fn forget_holder(&mut self, holder: Holder) {
        if self.holders.forget(holder) {
            self.empty(holder, HolderValidity::Leaving);
        }
    }

    /// Sets the number of blocks that a replica's cache holds. Above it, the least recently used go
    /// first.
    pub fn set_capacity(&mut self, holder: Holder, blocks: u32) {
        let Some(holder_entry) = self.holders.live(holder) else { return };
        holder_entry.capacity_told = blocks.max(1);
        holder_entry.capacity = holder_entry.capacity_told;
        self.stats.evictions += self.trim(holder);
    }

    /// Notes that `holder` holds all of `chain` now, because a request with it was sent there.
    ///
    /// Known blocks of `chain` count as just used. Blocks beyond the cache's capacity are left out.
    pub fn insert(&mut self, holder: Holder, chain: &[u64]) {
        let Some(expectation) = self.touch(holder, chain, chain.len()) else { return };
        self.holders.holder_entry(holder.0).sent = self.stamp;
        self.expectations.put(expectation);
    }

    /// Forgets all blocks of `holder`, because it restarted or its cache was reset. Look-ups that
    /// begin after this call see none of them. A long removal goes on in later calls; until it is
    /// done, new inserts for `holder` are not seen either.
    pub fn flush(&mut self, holder: Holder) {
        if self.holders.live(holder).is_some() {
            self.stats.flushes += 1;
            self.empty(holder, HolderValidity::Flushed(self.stamp));
        }
    }

    /// Forgets all blocks, because the key of their hashes is no longer used. Numbers and
    /// capacities stay.
    pub fn clear(&mut self) {
        self.blocks.clear();
        self.pairs = Pairs::new();
        self.holders.clear_chains();
        self.expectations.clear();
        self.sweep(0);
    }

    /// Removes at most `pairs_max` records of flushed replicas. Returns true if more are left.
    /// Every insert does some of this; call it only to end a flush soon while no requests come in.
    pub fn sweep(&mut self, pairs_max: usize) -> bool {
        let mut left = pairs_max;
        while let Some(holder) = self.sweeping.front().copied() {
            let void_until = match self.holders.holder_entry(holder).state {
                HolderValidity::Flushed(stamp) => stamp,
                HolderValidity::Leaving => u64::MAX,
                HolderValidity::Live | HolderValidity::Free => 0,
            };
            while let Some(pair) = self.oldest_of(holder, void_until) {
                if left == 0 {
                    return true;
                }
                self.remove(pair);
                left -= 1;
            }
            self.sweeping.pop_front();
            self.finish_sweep(holder);
        }
        false
    }

    /// Returns true if any replica is known to hold the block. Of a block without a record it is never
    /// known.
    #[must_use]
    pub fn is_held(&self, block: u64) -> bool {
        self.blocks.contains(block)
    }

    /// Returns the figures for metrics.
    #[must_use]
    pub fn stats(&self) -> IndexStats {
        IndexStats {
            blocks: self.blocks.len() as u64,
            pairs: self.pairs.len() as u64,
            bytes: (self.bytes() + self.blocks.holder_set_bytes()) as u64,
            holders: self.holders.len() as u64,
            ..self.stats
        }
    }

    /// Puts `chain` at a replica as just used: first the blocks of a prompt, then those of its reply.
    /// Returns the belief before that; `None` if nothing was put there.
    pub(super) fn touch(
        &mut self,
        holder: Holder,
        chain: &[u64],
        prompt_blocks: usize,
    ) -> Option<Expectation> {
        self.sweep(SWEEP_PAIRS);
        let holder_entry = self.holders.live(holder)?;
        // Records up to the flush stay in the table until they are swept, but must not count as
        // known.
        let void_until = match holder_entry.state {
            HolderValidity::Flushed(stamp) => stamp,
            _ => 0,
        };
        let mut known = true;
        self.stamp += STAMPS;
        let mut expectation = Expectation::new(holder.0, chain, self.stamp, holder_entry.answered);
        let mut newer = NO_PAIR;
        // First and last of the known records that lie together, and move as one.
        let mut together: Option<(u32, u32)> = None;
        let mut is_warm = false;
        for kept in (0..kept::count(chain.len())).map(kept::at) {
            let key = chain[kept.depth - 1];
            let stamp = self.stamp - u64::from(kept.depth > prompt_blocks);
            // Blocks that were used together lie behind each other, so most need no search.
            let last = together.map_or(NO_PAIR, |(_, last)| last);
            let found = self.pairs.just_behind(last, key);
            match found.or_else(|| self.blocks.find(&self.pairs, key, holder.0)) {
                Some(pair) => {
                    let used = self.pairs.at(pair).stamp();
                    if self.is_current(used) {
                        // A chain has no block twice, so a repeated block ends it.
                        break;
                    }
                    known &= used > void_until;
                    if known {
                        expectation.add(kept.depth as u32, used);
                    }
                    self.pairs.restamp(pair, stamp);
                    together = match together {
                        Some((first, last)) if self.pairs.is_just_behind(pair, last) => {
                            Some((first, pair))
                        }
                        _ => {
                            newer = self.advance(holder.0, together, newer);
                            Some((pair, pair))
                        }
                    };
                }
                None => {
                    known = false;
                    if !is_warm {
                        // The rest is new, too: all its cache misses overlap.
                        kept::behind(chain, kept.depth).for_each(|key| self.blocks.warm(key));
                        is_warm = true;
                    }
                    newer = self.advance(holder.0, together.take(), newer);
                    let Some(pair) = self.add(holder.0, (key, kept), newer, stamp) else {
                        // The rest of the chain would have no parent, so it is left out too.
                        self.stats.refused += 1;
                        break;
                    };
                    newer = pair;
                }
            }
        }
        let newer = self.advance(holder.0, together, newer);
        if newer == NO_PAIR {
            return None;
        }
        self.holders.note_aging(holder.0, self.stamp);
        Some(expectation)
    }

    /// Moves known records to the position of this chain, behind those of the blocks before. Returns
    /// the last record of the chain so far.
    fn advance(&mut self, holder: u16, together: Option<(u32, u32)>, newer: u32) -> u32 {
        let Some((first, last)) = together else { return newer };
        self.pairs.advance(self.holders.holder_entry(holder), first, last, newer);
        last
    }

    /// Returns true if a stamp is of the current chain.
    fn is_current(&self, stamp: u64) -> bool {
        stamp + STAMPS > self.stamp
    }

    /// Makes all records of a replica void, and starts to remove them.
    fn empty(&mut self, holder: Holder, state: HolderValidity) {
        self.shared.hide(holder.0);
        let holder_entry = self.holders.holder_entry(holder.0);
        // A flushed replica waits in the queue already.
        if holder_entry.state == HolderValidity::Live {
            self.sweeping.push_back(holder.0);
        }
        holder_entry.state = state;
        self.sweep(SWEEP_PAIRS);
    }

    fn finish_sweep(&mut self, holder: u16) {
        let holder_entry = self.holders.holder_entry(holder);
        match holder_entry.state {
            HolderValidity::Flushed(_) => holder_entry.state = HolderValidity::Live,
            // Only now is it safe to give the number to another replica.
            HolderValidity::Leaving => self.holders.release(holder),
            HolderValidity::Live | HolderValidity::Free => {}
        }
        self.shared.show(holder);
    }

    /// Adds a record just older than `newer`. Returns `None` if only blocks of this chain could
    /// make room.
    fn add(
        &mut self,
        holder: u16,
        (key, kept): (u64, KeptBlock),
        newer: u32,
        stamp: u64,
    ) -> Option<u32> {
        self.make_room(holder, 1 << kept.span_log)?;
        let pair = self.pairs.take(key, holder, kept.span_log)?;
        self.pairs.link(self.holders.holder_entry(holder), pair, newer, stamp);
        if self.blocks.add(&self.pairs, pair, self.holders.universe()).is_err() {
            self.pairs.unlink(self.holders.holder_entry(holder), pair);
            self.pairs.give_back(pair);
            return None;
        }
        Some(pair)
    }

    /// Makes room for one more record, of so many blocks, within the replica's capacity and the limit
    /// of the index. Returns `None` if only blocks of the current request could make room.
    fn make_room(&mut self, holder: u16, blocks: u32) -> Option<()> {
        loop {
            let holder_entry = self.holders.holder_entry(holder);
            if holder_entry.blocks + blocks <= holder_entry.capacity {
                break;
            }
            let oldest = holder_entry.oldest;
            self.evict(oldest)?;
        }
        for _ in 0..EVICTIONS_MAX {
            if self.grow() {
                return Some(());
            }
            let oldest = self.holders.oldest(&self.pairs)?;
            self.evict(oldest)?;
        }
        None
    }

    /// Takes more memory if there is no room for a record. Returns true if there is room now.
    fn grow(&mut self) -> bool {
        let pairs_bytes = if self.pairs.has_free() { 0 } else { Pairs::CHUNK_BYTES };
        let growth_bytes = pairs_bytes + self.blocks.growth_bytes();
        if growth_bytes > 0 {
            // The sets of replicas have their own share of the bytes.
            let room = self.bytes_max - self.bytes_max / HOLDER_SET_SHARE;
            if self.bytes() + growth_bytes > room {
                return false;
            }
            if pairs_bytes > 0 {
                self.pairs.grow();
            }
            self.blocks.grow();
        }
        true
    }

    /// Returns the bytes of everything except the sets, which have a share of their own.
    fn bytes(&self) -> usize {
        self.blocks.bytes() + self.pairs.bytes() + self.holders.bytes() + self.expectations.bytes()
    }

    /// Removes a replica's oldest records beyond its capacity. Returns their number.
    pub(super) fn trim(&mut self, holder: Holder) -> u64 {
        let mut removed = 0;
        loop {
            let holder_entry = self.holders.holder_entry(holder.0);
            if holder_entry.blocks <= holder_entry.capacity {
                return removed;
            }
            let oldest = holder_entry.oldest;
            self.remove(oldest);
            removed += 1;
        }
    }

    /// Removes a record to make room. Returns `None` if the current request has just used it.
    fn evict(&mut self, pair: u32) -> Option<()> {
        if pair == NO_PAIR || self.is_current(self.pairs.at(pair).stamp()) {
            return None;
        }
        // The next one to go, most likely.
        if let Some(next) = self.pairs.just_before(pair) {
            self.blocks.warm(next.key);
        }
        self.remove(pair);
        self.stats.evictions += 1;
        Some(())
    }

    pub(super) fn remove(&mut self, pair: u32) {
        let holder = self.pairs.at(pair).holder;
        self.blocks.remove(&self.pairs, pair, self.holders.universe());
        self.pairs.unlink(self.holders.holder_entry(holder), pair);
        self.pairs.give_back(pair);
    }

    /// Returns a replica's oldest record if it was last used at `stamp` or before.
    pub(super) fn oldest_of(&mut self, holder: u16, stamp: u64) -> Option<u32> {
        let oldest = self.holders.holder_entry(holder).oldest;
        (oldest != NO_PAIR && self.pairs.at(oldest).stamp() <= stamp).then_some(oldest)
    }
}
