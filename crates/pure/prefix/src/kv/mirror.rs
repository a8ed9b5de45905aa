//! Mirror of one replica's cache, made from its KV events.

use std::collections::BTreeSet;

use spillway_types::{BlockHashes, Holder, KvEvent, StoredBlocks};

use super::engine_blocks::{Chain, EngineBlocks};
use super::prompts::{Prompts, QuietPrompt, ReplyFigures, Sender, SentPrompt};
use super::session::chain_end_of;
use super::token_map::TokenMap;
use crate::FineIndex;

/// Number of requests in a row without an event of theirs, from which on the events are not
/// believed.
const SILENT_MAX: u32 = 8;
/// Number of a prompt's tokens that were not cached, from which on an engine must have stored a
/// block: the largest blocks have 256.
const NEW_TOKENS_MIN: u64 = 512;
/// Factor of a replica's cache while its events show what is evicted. The rest of the model is
/// there for what events do not explain, and must not evict for an error in the size of a block.
const LIVE_ROOM: f64 = 1.25;
/// Weight of one reply in the usual tokens per byte of a replica.
const RATE_WEIGHT: f64 = 0.1;

/// Standing of a replica's events.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum KvState {
    // Unproven => (Live | Stale)
    /// No event of a request of this region was seen since the events began.
    #[default]
    Unproven,
    // Live => (Unproven | Stale)
    /// The events report requests.
    Live,
    // Stale => (Unproven | Live)
    /// Requests have ended, and no event reported them.
    Stale,
}

/// Events of a prompt that have come so far.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Due {
    Some,
    All,
}

/// Newest engine block of a request that can't be distinguished from those of others with its
/// prompt.
#[derive(Debug)]
struct AmbiguousLeaf;

/// Mirror of one engine's cache.
///
/// Without events that report requests it changes nothing in the index, which then assumes what the
/// engine evicts. With them, blocks of prompts are removed from the index when the engine reports
/// that. Blocks that no known engine block carries stay with the assumption.
#[derive(Debug)]
pub struct KvMirror {
    block_bytes: f64,
    state: KvState,
    engine: EngineBlocks,
    prompts: Prompts,
    silent: u32,
    /// Usual tokens per byte; `None` before the first reply that reports its tokens.
    rate: Option<f64>,
    /// Group of layers that is followed: the first one seen. Other groups have the same blocks.
    group: Option<u32>,
}

impl KvMirror {
    /// Creates the mirror of an engine of which nothing is known, for blocks of so many bytes.
    pub fn new(block_bytes: usize) -> Self {
        Self {
            block_bytes: block_bytes as f64,
            state: KvState::default(),
            engine: EngineBlocks::default(),
            prompts: Prompts::default(),
            silent: 0,
            rate: None,
            group: None,
        }
    }

    /// Returns the standing of the events.
    pub fn state(&self) -> KvState {
        self.state
    }

    /// Returns true if the events show what the engine evicts.
    #[must_use]
    pub fn is_live(&self) -> bool {
        self.state == KvState::Live
    }

    /// Returns the factor of the replica's cache in the index.
    #[must_use]
    pub fn room(&self) -> f64 {
        if self.is_live() { LIVE_ROOM } else { 1.0 }
    }

    /// Returns the number of engine blocks that are known.
    pub fn blocks(&self) -> usize {
        self.engine.len()
    }

    /// Returns true if the engine has this block of a prompt according to the events.
    pub fn carries(&self, block: u64) -> bool {
        self.state == KvState::Live && self.engine.carries(block)
    }

    /// Notes a prompt that was sent to the replica.
    pub fn sent(&mut self, chain: &BlockHashes, sender: Sender, now_ms: u64) {
        self.prompts.sent(chain, sender, now_ms);
    }

    /// Notes that a prompt was not read.
    pub fn unread(&mut self, chain: &[u64]) {
        if let Some(tail) = chain.last() {
            self.prompts.unread(*tail);
        }
    }

    /// Notes the end of a reply to `chain`, and ties what was stored for it so far.
    pub fn replied(
        &mut self,
        (index, holder): (&mut FineIndex, Holder),
        chain: &[u64],
        figures: ReplyFigures,
        now_ms: u64,
    ) {
        if let Some(map) = TokenMap::of(&figures, 0.0) {
            let rate = self.rate.get_or_insert_with(|| map.prompt_rate());
            *rate += RATE_WEIGHT * (map.prompt_rate() - *rate);
        }
        let Some(tail) = chain.last() else { return };
        let Some(prompt) = self.prompts.ended(*tail, &figures, now_ms).cloned() else { return };
        // The engine may have stored more than it has reported so far, so the end is not known.
        self.tie((index, holder), &prompt, Some(&figures), Due::Some);
    }

    /// Handles an event.
    pub fn note(&mut self, index: &mut FineIndex, holder: Holder, event: &KvEvent, now_ms: u64) {
        match event {
            KvEvent::Stored(stored) => self.stored(stored, now_ms),
            KvEvent::Removed { hashes, group } if self.follows(*group) => {
                let gone = hashes.iter().flat_map(|hash| self.engine.remove(*hash)).collect();
                self.forget(index, holder, gone);
            }
            KvEvent::Removed { .. } => {}
            KvEvent::Cleared => {
                self.engine = EngineBlocks::default();
                if self.state == KvState::Live {
                    index.flush(holder);
                }
            }
        }
    }

    /// Forgets everything learned from events, because some were missed.
    pub fn miss(&mut self) {
        self.engine = EngineBlocks::default();
        self.group = None;
        self.silent = 0;
        self.state = KvState::Unproven;
    }

    /// Ties the prompts of which no more events are expected. Returns true if the events are found
    /// to report nothing of requests, for the first time.
    #[must_use]
    pub fn settle(&mut self, index: &mut FineIndex, holder: Holder, now_ms: u64) -> bool {
        for prompt in self.prompts.paused(now_ms) {
            self.tie((index, holder), &prompt, None, Due::Some);
        }
        for QuietPrompt { prompt, figures } in self.prompts.take_quiet(now_ms) {
            self.count_silence(&prompt, figures.as_ref());
            self.tie((index, holder), &prompt, figures.as_ref(), Due::All);
        }
        let is_stale = self.silent >= SILENT_MAX && self.state != KvState::Stale;
        if is_stale {
            self.miss();
            self.state = KvState::Stale;
        }
        is_stale
    }

    fn stored(&mut self, stored: &StoredBlocks, now_ms: u64) {
        if !self.follows(stored.group) {
            return;
        }
        let tail = stored.session.as_deref().and_then(chain_end_of);
        let known = tail.zip(stored.hashes.last());
        let is_known = known
            .is_some_and(|(tail, leaf)| self.prompts.stored(tail, stored.parent, *leaf, now_ms));
        // Blocks that the engine reports again because of other clients are no further copies.
        self.engine.store(stored, is_known);
        if is_known {
            (self.state, self.silent) = (KvState::Live, 0);
        }
    }

    fn follows(&mut self, group: Option<u32>) -> bool {
        let Some(group) = group else { return true };
        *self.group.get_or_insert(group) == group
    }

    /// Counts a request whose events are missing.
    fn count_silence(&mut self, prompt: &SentPrompt, figures: Option<&ReplyFigures>) {
        let Some(figures) = figures.filter(|figures| figures.is_whole) else { return };
        let tokens = figures.prompt_tokens.unwrap_or(0);
        let is_due =
            tokens.saturating_sub(figures.cached_tokens.unwrap_or(tokens)) >= NEW_TOKENS_MIN;
        if is_due && prompt.leaves.is_empty() {
            self.silent += 1;
        }
    }

    /// Ties a prompt with its reply to the engine blocks that carry it, and has the index hold what is
    /// carried. Once all events are in, it holds nothing else of the prompt.
    fn tie(
        &mut self,
        (index, holder): (&mut FineIndex, Holder),
        prompt: &SentPrompt,
        figures: Option<&ReplyFigures>,
        due: Due,
    ) {
        if self.state != KvState::Live {
            return;
        }
        let chain = prompt.chain.as_slice();
        let written = figures.iter().flat_map(|figures| &figures.written);
        let whole: Vec<u64> = chain.iter().chain(written).copied().collect();
        let whole_told = figures.filter(|figures| figures.is_whole && due == Due::All);
        // The last token of a reply is not computed.
        let end_tokens = whole_told
            .and_then(|figures| figures.prompt_tokens?.checked_add(figures.output_tokens))
            .map(|tokens| tokens.saturating_sub(1));
        let Ok(leaf) = self.leaf_of(prompt, figures, end_tokens) else {
            // Another request with the prompt stored them, or this one: it is assumed that they are
            // there, as without events.
            return index.extend(holder, &whole, chain.len());
        };
        let Some(map) = self.token_map(figures, whole.len()) else { return };
        let tied = self.engine.tie(Chain {
            blocks: &whole,
            block_bytes: self.block_bytes,
            map,
            leaf,
            end_tokens: end_tokens.filter(|_| prompt.requests == 1),
        });
        let (Ok(held) | Err(held)) = tied;
        if held > 0 {
            index.confirm(holder, &whole[..held], chain.len());
        }
        if due == Due::All && tied.is_ok() {
            let behind: Vec<u64> = whole[held..].iter().rev().copied().collect();
            index.forget_blocks(holder, &behind);
        }
    }

    /// Returns the newest engine block of one of a prompt's requests; `None` if nothing was stored.
    /// An error if it can't be distinguished from those of other requests with the prompt.
    fn leaf_of(
        &mut self,
        prompt: &SentPrompt,
        figures: Option<&ReplyFigures>,
        end_tokens: Option<u64>,
    ) -> Result<Option<u64>, AmbiguousLeaf> {
        let newest = prompt.leaves.last().copied();
        // All of them have the prompt, and nothing else is asked for.
        if prompt.requests == 1 || figures.is_none_or(|figures| figures.written.is_empty()) {
            return Ok(newest);
        }
        let end_tokens = end_tokens.ok_or(AmbiguousLeaf)?;
        let leaf = self.engine.leaf_at(&prompt.leaves, end_tokens).ok_or(AmbiguousLeaf)?;
        if let Some(tail) = prompt.chain.as_slice().last() {
            self.prompts.forget_leaf(*tail, leaf);
        }
        Ok(Some(leaf))
    }

    /// Returns where the tokens of a prompt with its reply are, which have so many blocks together;
    /// `None` if nothing is known of that.
    fn token_map(&self, figures: Option<&ReplyFigures>, blocks: usize) -> Option<TokenMap> {
        // The last block of the reply is full, and half a block more is the best guess.
        let whole_bytes = (blocks as f64 + 0.5) * self.block_bytes;
        let by_reply = figures.and_then(|figures| {
            TokenMap::of(figures, (whole_bytes - f64::from(figures.prompt_bytes)).max(0.0))
        });
        by_reply.or_else(|| self.rate.map(TokenMap::usual))
    }

    /// Has the index forget blocks, and what prompts under way have put behind them.
    fn forget(&self, index: &mut FineIndex, holder: Holder, gone: Vec<u64>) {
        if self.state != KvState::Live || gone.is_empty() {
            return;
        }
        let set: BTreeSet<u64> = gone.iter().copied().collect();
        // Engines evict with every step, and hardly ever blocks of a prompt in progress: for most
        // blocks, six bits show that they are not among the evicted ones.
        let bit = |block: u64| 1_u64 << (block % 64);
        let bits = gone.iter().fold(0, |bits, block| bits | bit(*block));
        let is_gone = |block: &u64| bits & bit(*block) != 0 && set.contains(block);
        for prompt in self.prompts.iter() {
            let chain = prompt.chain.as_slice();
            if let Some(at) = chain.iter().position(is_gone) {
                let behind: Vec<u64> = chain[at..].iter().rev().copied().collect();
                index.forget_blocks(holder, &behind);
            }
        }
        index.forget_blocks(holder, &gone);
    }
}

#[cfg(test)]
#[path = "mirror_test.rs"]
mod tests;
