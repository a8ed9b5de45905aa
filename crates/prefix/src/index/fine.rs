//! The index's one writer.

use std::collections::VecDeque;
use std::sync::Arc;

use spillway_types::Holder;

use super::blocks::Blocks;
use super::crowd_words::{CHUNK_WORDS, CrowdWords};
use super::expectations::{Expectation, Expectations};
use super::holders::{Holders, LaneState};
use super::pairs::{NO_PAIR, Pairs};
use super::shared::Shared;
use crate::{IndexConfig, IndexReader, IndexStats};

/// Fewest bytes that are used, whatever the config says: less is filled by a handful of prompts.
const BYTES_MIN: usize = 1 << 20;
/// Of all bytes, one part in so many is for sets of replicas that hold the same block. Blocks of
/// one replica have none; of many, 2 bytes a replica in a list and a bit in a large set.
const CROWD_SHARE: usize = 8;
/// And one part in so many for what was believed of requests in flight.
const EXPECTATION_SHARE: usize = 64;
/// Records of flushed replicas that each call removes: some 100 µs.
const SWEEP_PAIRS: usize = 1_024;
/// Most records that are evicted to make room for one.
const EVICTIONS_MAX: usize = 64;

/// Which replica holds which blocks, as far as requests and replies have shown.
///
/// A replica's cache is modelled as its engine keeps it: what was used longest ago goes first, and
/// a block goes before the blocks that it continues. So all known blocks of a replica are closed
/// under prefixes at any time. Two limits make blocks go: what the replica's cache holds
/// ([`FineIndex::set_capacity`]) and the bytes of the whole index, whoever's block is the oldest.
///
/// Methods take time in proportion to the chain; a growing table is copied now and then (10 ms for
/// a million blocks), during which the old one stays in memory and is read.
#[derive(Debug)]
pub struct FineIndex {
    bytes_max: usize,
    shared: Arc<Shared>,
    blocks: Blocks,
    pairs: Pairs,
    holders: Holders,
    expectations: Expectations,
    /// Replicas whose void records are not all removed.
    sweeping: VecDeque<u16>,
    /// Counts inserts.
    stamp: u64,
    stats: IndexStats,
}

impl FineIndex {
    /// An empty index and a reader of it.
    #[must_use]
    pub fn new(config: IndexConfig) -> (Self, IndexReader) {
        let bytes_max = config.bytes_max.max(BYTES_MIN);
        let chunks = (bytes_max / CROWD_SHARE / (CHUNK_WORDS * size_of::<u64>())).max(1);
        // A set is found by 28 bits.
        let words = Arc::new(CrowdWords::new(chunks.min((1 << 28) / CHUNK_WORDS)));
        let shared = Arc::new(Shared::new(Blocks::smallest_table(), words));
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

    /// The number of the replica with `identity`, given now if it has none; `None` if all 65,535
    /// are in use.
    pub fn holder(&mut self, identity: u64) -> Option<Holder> {
        let holder = self.holders.number(identity);
        self.shared.set_universe(self.holders.universe());
        holder
    }

    /// Forgets a replica that is gone for good, and what it held.
    ///
    /// Its number goes to another replica only after all others were used once.
    pub fn forget_holder(&mut self, holder: Holder) {
        if self.holders.forget(holder) {
            self.empty(holder, LaneState::Leaving);
        }
    }

    /// Says how many blocks a replica's cache holds; the least recently used of them go first.
    pub fn set_capacity(&mut self, holder: Holder, blocks: u32) {
        let Some(lane) = self.holders.live(holder) else { return };
        lane.capacity_told = blocks.max(1);
        lane.capacity = lane.capacity_told;
        self.stats.evictions += self.trim(holder);
    }

    /// Notes that `holder` holds all of `chain` now: a request with it was sent there.
    ///
    /// What was known of `chain` is as good as new. Blocks beyond what the cache holds are left out.
    pub fn insert(&mut self, holder: Holder, chain: &[u64]) {
        self.sweep(SWEEP_PAIRS);
        let Some(lane) = self.holders.live(holder) else { return };
        let void_until = match lane.state {
            LaneState::Flushed(stamp) => stamp,
            _ => 0,
        };
        let mut known = true;
        chain.iter().for_each(|key| self.blocks.warm(*key));
        self.stamp += 1;
        let mut expectation = Expectation::new(holder.0, chain, self.stamp, lane.answered);
        let mut newer = NO_PAIR;
        for (depth, key) in (1..).zip(chain) {
            newer = match self.blocks.find(&self.pairs, *key, holder.0) {
                Some(pair) => {
                    let stamp = self.pairs.at(pair).stamp();
                    if stamp == self.stamp {
                        // A chain has no block twice; what has is no chain from here on.
                        break;
                    }
                    known &= stamp > void_until;
                    if known {
                        expectation.add(depth, stamp);
                    }
                    let lane = self.holders.lane(holder.0);
                    self.pairs.unlink(lane, pair);
                    self.pairs.link(lane, pair, newer, self.stamp);
                    pair
                }
                None => {
                    known = false;
                    let Some(pair) = self.add(holder.0, *key, newer) else {
                        self.stats.refused += 1;
                        break;
                    };
                    pair
                }
            };
        }
        if newer != NO_PAIR {
            self.holders.note_aging(holder.0, self.stamp);
            self.expectations.put(expectation);
        }
    }

    /// Notes a reply to a request with `chain`: only `cached_blocks` leading blocks of it were in
    /// the cache of `holder` before the request. To be called once, after the
    /// [`insert`](Self::insert) of the request; blocks that were cached in part count.
    ///
    /// If the index had believed in more, the first block beyond was evicted although it had been
    /// used at some time *t*; then all that was used before *t* is gone too, and is forgotten. An
    /// eighth of the blocks that were believed in may be missing without consequence: engines do
    /// not count the last tokens, and tokens are no fixed number of bytes. Beliefs that come from
    /// requests that had not been answered when this one was sent say nothing either: their blocks
    /// were still being computed.
    pub fn correct(&mut self, holder: Holder, chain: &[u64], cached_blocks: u32) {
        self.sweep(SWEEP_PAIRS);
        let Some(expected) = self.expectations.take(holder.0, chain) else { return };
        let Some(lane) = self.holders.live(holder) else { return };
        lane.answered = lane.answered.max(expected.sent);
        let believed = expected.blocks();
        if cached_blocks + believed.div_ceil(8) >= believed {
            lane.recover(256);
            return;
        }
        let first_missing = cached_blocks + believed.div_ceil(8) + 1;
        let Some(gone) = expected.stamp(first_missing).filter(|stamp| *stamp <= expected.answered)
        else {
            return;
        };
        let mut corrections = 0;
        while let Some(pair) = self.oldest_of(holder.0, gone) {
            self.remove(pair);
            corrections += 1;
        }
        self.stats.corrections += corrections;
        let lane = self.holders.lane(holder.0);
        // Once may be a restart that nobody noticed; a cache that is smaller shows it again.
        lane.capacity = lane.blocks.max(lane.capacity / 8 * 7).max(1).min(lane.capacity);
    }

    /// Notes that the request with `chain` came to nothing before its replica read it. To be called
    /// once, after the [`insert`](Self::insert) of the request and in place of
    /// [`correct`](Self::correct): what was new with it goes, unless another request has used it
    /// since then.
    ///
    /// The blocks that are left are as recently used as if it had been read, and where several
    /// requests with a common new beginning fail at the same time, that beginning stays: each
    /// counted on the others. Replies and counters show what is not there.
    pub fn take_back(&mut self, holder: Holder, chain: &[u64]) {
        let Some(expected) = self.expectations.take(holder.0, chain) else { return };
        let new = chain.get(expected.blocks() as usize..).unwrap_or_default();
        // From the end: at all times a replica that has a block has those before it.
        for key in new.iter().rev() {
            let pair = self.blocks.find(&self.pairs, *key, holder.0);
            if let Some(pair) = pair.filter(|pair| self.pairs.at(*pair).stamp() == expected.sent) {
                self.remove(pair);
                self.stats.corrections += 1;
            }
        }
    }

    /// Notes what a replica's own counters say of a period: of the tokens that were expected to be
    /// cached, `seen_tokens` were. For engines whose replies do not tell.
    ///
    /// Where more than a tenth is missing, the cache is taken to hold as much less, at most half
    /// at once; otherwise a sixteenth more, up to what was said by
    /// [`set_capacity`](Self::set_capacity).
    pub fn note_hit_ratio(&mut self, holder: Holder, expected_tokens: u64, seen_tokens: u64) {
        let Some(lane) = self.holders.live(holder) else { return };
        if expected_tokens == 0 {
            return;
        }
        let ratio = seen_tokens as f64 / expected_tokens as f64;
        if ratio >= 0.9 {
            lane.recover(16);
            return;
        }
        let held = f64::from(lane.blocks.min(lane.capacity));
        lane.capacity = ((held * ratio.max(0.5)) as u32).max(1);
        self.stats.corrections += self.trim(holder);
    }

    /// Forgets all that `holder` held: it restarted, or its cache was reset. Look-ups that begin
    /// after this returns see none of it. Removal goes on with later calls where it is much; until
    /// it is done, what is inserted for `holder` is not seen either.
    pub fn flush(&mut self, holder: Holder) {
        if self.holders.live(holder).is_some() {
            self.stats.flushes += 1;
            self.empty(holder, LaneState::Flushed(self.stamp));
        }
    }

    /// Forgets all blocks: the key they were hashed with is no longer used. Numbers and capacities
    /// stay.
    pub fn clear(&mut self) {
        self.blocks.clear();
        self.pairs = Pairs::new();
        self.holders.clear_chains();
        self.expectations.clear();
        self.sweep(0);
    }

    /// Removes at most `pairs_max` records of flushed replicas; whether more are left. Every insert
    /// does some of it: to be called only where a flush should end soon although nothing comes in.
    pub fn sweep(&mut self, pairs_max: usize) -> bool {
        let mut left = pairs_max;
        while let Some(holder) = self.sweeping.front().copied() {
            let void_until = match self.holders.lane(holder).state {
                LaneState::Flushed(stamp) => stamp,
                LaneState::Leaving => u64::MAX,
                LaneState::Live | LaneState::Free => 0,
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

    /// Whether any replica is known to hold the block.
    #[must_use]
    pub fn is_held(&self, block: u64) -> bool {
        self.blocks.contains(block)
    }

    /// Figures for metrics.
    #[must_use]
    pub fn stats(&self) -> IndexStats {
        IndexStats {
            blocks: self.blocks.len() as u64,
            pairs: self.pairs.len() as u64,
            bytes: (self.bytes() + self.blocks.crowd_bytes()) as u64,
            holders: self.holders.len() as u64,
            ..self.stats
        }
    }

    /// Makes all records of a replica void.
    fn empty(&mut self, holder: Holder, state: LaneState) {
        self.shared.hide(holder.0);
        let lane = self.holders.lane(holder.0);
        if lane.state == LaneState::Live {
            self.sweeping.push_back(holder.0);
        }
        lane.state = state;
        self.sweep(SWEEP_PAIRS);
    }

    fn finish_sweep(&mut self, holder: u16) {
        let lane = self.holders.lane(holder);
        match lane.state {
            LaneState::Flushed(_) => lane.state = LaneState::Live,
            LaneState::Leaving => self.holders.release(holder),
            LaneState::Live | LaneState::Free => {}
        }
        self.shared.show(holder);
    }

    /// A new record just older than `newer`; `None` if only blocks of this chain could make room.
    fn add(&mut self, holder: u16, key: u64, newer: u32) -> Option<u32> {
        self.make_room(holder)?;
        let pair = self.pairs.take(key, holder)?;
        self.pairs.link(self.holders.lane(holder), pair, newer, self.stamp);
        if self.blocks.add(&self.pairs, pair, self.holders.universe()).is_err() {
            self.pairs.unlink(self.holders.lane(holder), pair);
            self.pairs.give_back(pair);
            return None;
        }
        Some(pair)
    }

    /// Room for one more record, within what the replica's cache and the index hold.
    fn make_room(&mut self, holder: u16) -> Option<()> {
        let lane = self.holders.lane(holder);
        if lane.blocks >= lane.capacity {
            let oldest = lane.oldest;
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

    /// Takes more memory if there is no room for a record; whether there is room then.
    fn grow(&mut self) -> bool {
        let pairs_bytes = if self.pairs.has_free() { 0 } else { Pairs::CHUNK_BYTES };
        let growth_bytes = pairs_bytes + self.blocks.growth_bytes();
        if growth_bytes > 0 {
            let room = self.bytes_max - self.bytes_max / CROWD_SHARE;
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

    /// Bytes of all but the sets, which have a share of their own.
    fn bytes(&self) -> usize {
        self.blocks.bytes() + self.pairs.bytes() + self.holders.bytes() + self.expectations.bytes()
    }

    /// Forgets a replica's oldest records that its cache has no room for; how many.
    fn trim(&mut self, holder: Holder) -> u64 {
        let lane = self.holders.lane(holder.0);
        let excess = lane.blocks.saturating_sub(lane.capacity);
        for _ in 0..excess {
            let oldest = self.holders.lane(holder.0).oldest;
            self.remove(oldest);
        }
        u64::from(excess)
    }

    /// Removes a record to make room, unless the request at hand has just used it.
    fn evict(&mut self, pair: u32) -> Option<()> {
        if pair == NO_PAIR || self.pairs.at(pair).stamp() == self.stamp {
            return None;
        }
        self.remove(pair);
        self.stats.evictions += 1;
        Some(())
    }

    fn remove(&mut self, pair: u32) {
        let holder = self.pairs.at(pair).holder;
        self.blocks.remove(&self.pairs, pair, self.holders.universe());
        self.pairs.unlink(self.holders.lane(holder), pair);
        self.pairs.give_back(pair);
    }

    /// A replica's oldest record, if it was used no later than at `stamp`.
    fn oldest_of(&mut self, holder: u16, stamp: u64) -> Option<u32> {
        let oldest = self.holders.lane(holder).oldest;
        (oldest != NO_PAIR && self.pairs.at(oldest).stamp() <= stamp).then_some(oldest)
    }
}
