//! Corrections of the index by replies and counters of replicas.

use spillway_types::Holder;

use super::fine::{STAMPS, SWEEP_PAIRS};
use super::kept;
use crate::FineIndex;

/// Number of replies in a row that the next request did not find cached, from which on replies of
/// that replica are mostly not believed to be cached.
const REPLIES_MISSED_MAX: u8 = 8;
/// Share of the replies, as one of so many, that are believed nevertheless, to notice a change.
const REPLY_TRIALS: u64 = 16;

impl FineIndex {
    /// Notes that the replica has written the whole reply to a request: it holds `chain` now, whose
    /// first `prompt_blocks` are those of the prompt. Call it after [`correct`](Self::correct).
    ///
    /// All of them count as just used, since an engine keeps them until the reply is complete. The
    /// reply's blocks count as older than the prompt's, and are left out where requests show that
    /// the replica's next prompts do not find them.
    pub fn extend(&mut self, holder: Holder, chain: &[u64], prompt_blocks: usize) {
        let Some(holder_entry) = self.holders.live(holder) else { return };
        let is_missed = holder_entry.replies_missed >= REPLIES_MISSED_MAX;
        let is_trial = (self.stamp / STAMPS).is_multiple_of(REPLY_TRIALS);
        let kept = if is_missed && !is_trial { prompt_blocks } else { chain.len() };
        let chain = &chain[..kept.min(chain.len())];
        if self.touch(holder, chain, prompt_blocks).is_some() {
            let stamp = self.stamp;
            let holder_entry = self.holders.holder_entry(holder.0);
            if holder_entry.answered >= holder_entry.sent {
                // Nothing else is being computed there.
                holder_entry.answered = stamp;
            }
        }
    }

    /// Notes a reply to a request with `chain`: only `cached_blocks` leading blocks were in the
    /// cache of `holder` before the request. Blocks cached in part count. Call it once, after the
    /// [`insert`](Self::insert) of the request.
    ///
    /// If the index believed in more blocks, the first missing one was evicted although it was last
    /// used at some time *t*. Everything last used up to *t* is then gone too, and is forgotten. An
    /// eighth of the believed blocks may be missing without consequence: engines do not count the
    /// last tokens, and tokens have no fixed number of bytes. Beliefs from requests without an
    /// answer at the time of sending prove nothing either: the engine was still computing their
    /// blocks. Nor do blocks of a reply: the engine's template may have put the reply into this
    /// prompt in another form.
    pub fn correct(&mut self, holder: Holder, chain: &[u64], cached_blocks: u32) {
        self.sweep(SWEEP_PAIRS);
        let Some(expected) = self.expectations.take(holder.0, chain) else { return };
        let Some(holder_entry) = self.holders.live(holder) else { return };
        holder_entry.answered = holder_entry.answered.max(expected.sent);
        let believed = expected.blocks();
        // The tolerance of an eighth: the belief was right.
        if cached_blocks + believed.div_ceil(8) >= believed {
            // Capacity recovers slowly after a miss: a 256th per right reply.
            holder_entry.recover(256);
            if expected.stamp(believed).is_some_and(is_of_reply) {
                holder_entry.replies_missed = 0;
            }
            return;
        }
        let first_missing = cached_blocks + believed.div_ceil(8) + 1;
        let Some(gone) = expected.stamp(first_missing) else { return };
        if is_of_reply(gone) {
            holder_entry.replies_missed = holder_entry.replies_missed.saturating_add(1);
            return;
        }
        if gone > expected.answered {
            return;
        }
        let mut corrections = 0;
        while let Some(pair) = self.oldest_of(holder.0, gone) {
            self.remove(pair);
            corrections += 1;
        }
        self.stats.corrections += corrections;
        let holder_entry = self.holders.holder_entry(holder.0);
        // A single miss may come from an unnoticed restart, so capacity falls by an eighth at most;
        // a cache that is really smaller shows it again.
        holder_entry.capacity = holder_entry
            .blocks
            .max(holder_entry.capacity / 8 * 7)
            .max(1)
            .min(holder_entry.capacity);
    }

    /// Notes that the replica's engine holds `chain`, whose first `prompt_blocks` are those of a
    /// prompt, because the engine itself reported this. All of them count as just used.
    pub fn confirm(&mut self, holder: Holder, chain: &[u64], prompt_blocks: usize) {
        self.touch(holder, chain, prompt_blocks);
    }

    /// Forgets blocks of `holder` that its engine reported as removed. To keep the blocks of a
    /// replica closed under prefixes, name each block with those that continue it, and those first.
    pub fn forget_blocks(&mut self, holder: Holder, blocks: &[u64]) {
        if self.holders.live(holder).is_none() {
            return;
        }
        for block in blocks {
            if let Some(pair) = self.blocks.find(&self.pairs, *block, holder.0) {
                self.remove(pair);
            }
        }
    }

    /// Returns how many leading blocks of `chain` were believed to be at `holder` when the request was
    /// inserted, and forgets that; `None` if it is not known. In place of
    /// [`correct`](Self::correct), where a reply proves nothing about other blocks.
    pub fn take_belief(&mut self, holder: Holder, chain: &[u64]) -> Option<u32> {
        Some(self.expectations.take(holder.0, chain)?.blocks())
    }

    /// Notes that the request with `chain` failed before its replica read it. Blocks that were new
    /// with this request are removed, unless another request has used them since. Call it once,
    /// after the [`insert`](Self::insert) of the request and in place of
    /// [`correct`](Self::correct).
    ///
    /// The remaining blocks keep the time of use of this request. If several requests with a common
    /// new beginning fail at the same time, that beginning stays, since each request counted on the
    /// others. Later replies and counters correct it.
    pub fn take_back(&mut self, holder: Holder, chain: &[u64]) {
        let Some(expected) = self.expectations.take(holder.0, chain) else { return };
        // From the end, since the blocks of a replica must stay closed under prefixes at all times.
        for key in kept::behind(chain, expected.blocks() as usize).rev() {
            let pair = self.blocks.find(&self.pairs, key, holder.0);
            if let Some(pair) = pair.filter(|pair| self.pairs.at(*pair).stamp() == expected.sent) {
                self.remove(pair);
                self.stats.corrections += 1;
            }
        }
    }

    /// Notes a replica's own counters for a period: of `expected_tokens` tokens that should have
    /// been cached, `seen_tokens` were. For engines whose replies do not report cached tokens.
    ///
    /// If more than a tenth is missing, the assumed capacity falls in proportion, at most by half.
    /// If not, it rises by a sixteenth, up to the value of [`set_capacity`](Self::set_capacity).
    pub fn note_hit_ratio(&mut self, holder: Holder, expected_tokens: u64, seen_tokens: u64) {
        let Some(holder_entry) = self.holders.live(holder) else { return };
        if expected_tokens == 0 {
            return;
        }
        let ratio = seen_tokens as f64 / expected_tokens as f64;
        if ratio >= 0.9 {
            holder_entry.recover(16);
            return;
        }
        // The ratio applies to the blocks that the index believed in, not to the capacity.
        let held = f64::from(holder_entry.blocks.min(holder_entry.capacity));
        holder_entry.capacity = ((held * ratio.max(0.5)) as u32).max(1);
        self.stats.corrections += self.trim(holder);
    }
}

/// Returns true if the last use of a block was as part of a reply, which no request has repeated
/// yet.
fn is_of_reply(stamp: u64) -> bool {
    !stamp.is_multiple_of(STAMPS)
}
