//! Index of caches: the blocks that each of some targets is expected to hold.

use spillway_prefix::{FineIndex, IndexConfig, IndexReader, Matches};
use spillway_types::Holder;

use super::mirrors::Mirrors;
use super::{CacheReport, Replied, Sent, Written};
use crate::text::{BLOCK_TOKENS, mix};

/// Knowledge of the caches of numbered targets: replicas, or whole regions.
///
/// All baselines know caches by the gateway's own index, which replies correct. That is at least as
/// good as what their authors built: approximate trees that nothing corrects, with sizes that are
/// set by hand.
#[derive(Debug)]
pub(super) struct CacheIndex {
    index: FineIndex,
    reader: IndexReader,
    holders: Vec<Option<Holder>>,
    /// Mirrors of the targets' caches; `None` without KV events.
    mirrors: Option<Mirrors>,
    /// Blocks of the prompt that was looked up last.
    matches: Matches,
}

impl CacheIndex {
    /// Returns an index without knowledge of so many targets, each of which holds at most
    /// `blocks_max` blocks.
    pub(super) fn new(targets: usize, blocks_max: u32) -> Self {
        let (mut index, reader) = FineIndex::new(IndexConfig::default());
        let holders: Vec<_> = (0..targets).map(|at| index.holder(mix(29, at as u64))).collect();
        for holder in holders.iter().flatten() {
            index.set_capacity(*holder, blocks_max);
        }
        Self { index, reader, holders, mirrors: None, matches: Matches::new() }
    }

    /// Returns an index of so many replicas whose caches hold so many tokens each, as their KV
    /// events show.
    pub(super) fn following_events(replicas: usize, kv_tokens: f32) -> Self {
        let mirrors = Mirrors::new(replicas, kv_tokens as u32 / BLOCK_TOKENS);
        Self { mirrors: Some(mirrors), ..Self::of_replicas(replicas, kv_tokens) }
    }

    /// Returns an index of so many replicas whose caches hold so many tokens each.
    pub(super) fn of_replicas(replicas: usize, kv_tokens: f32) -> Self {
        Self::new(replicas, kv_tokens as u32 / BLOCK_TOKENS)
    }

    /// Looks up a prompt, for the calls of [`CacheIndex::blocks`] that follow.
    pub(super) fn look_up(&mut self, chain: &[u64]) {
        self.reader.lookup(chain, &mut self.matches);
    }

    /// Returns the leading blocks of the prompt that a target is expected to hold.
    pub(super) fn blocks(&self, target: usize) -> u32 {
        self.holders[target].map_or(0, |holder| self.matches.blocks(holder))
    }

    /// Notes that a target has, or will have, all these blocks.
    pub(super) fn insert(&mut self, target: usize, chain: &[u64]) {
        if let Some(holder) = self.holders[target] {
            self.index.insert(holder, chain);
        }
    }

    /// Notes that a prompt was sent to a replica.
    pub(super) fn sent(&mut self, sent: &Sent<'_>) {
        self.insert(sent.replica, sent.chain);
        if let Some(mirrors) = &mut self.mirrors {
            mirrors.sent(sent);
        }
    }

    /// Notes how much of a prompt a replica had cached.
    pub(super) fn replied(&mut self, replied: &Replied<'_>) {
        let first_missing = replied.chain.get((replied.cached_tokens / BLOCK_TOKENS) as usize);
        let carries = |mirrors: &Mirrors| mirrors.carries(replied.replica, first_missing);
        // Where the engine itself reports evictions, a reply proves nothing about other blocks.
        if !self.mirrors.as_ref().is_some_and(carries) {
            self.correct(replied.replica, replied.chain, replied.cached_tokens);
        }
    }

    /// Notes a prompt with its reply, for targets whose KV events are read: they report which
    /// blocks are kept.
    pub(super) fn written(&mut self, written: &Written<'_>) {
        let Some(mirrors) = &mut self.mirrors else { return };
        let Some(holder) = self.holders[written.replica] else { return };
        if !mirrors.written(&mut self.index, holder, written) {
            self.insert(written.replica, written.chain);
        }
    }

    /// Notes news that a replica's engine published of its cache.
    pub(super) fn cache_told(&mut self, report: &CacheReport<'_>) {
        if let Some(mirrors) = &mut self.mirrors {
            mirrors.note(&mut self.index, &self.holders, report);
        }
    }

    /// Returns true if the KV events of the targets are read.
    pub(super) fn follows_events(&self) -> bool {
        self.mirrors.is_some()
    }

    /// Corrects the expectation for a target by its report on a prompt.
    pub(super) fn correct(&mut self, target: usize, chain: &[u64], cached_tokens: u32) {
        if let Some(holder) = self.holders[target] {
            self.index.correct(holder, chain, cached_tokens / BLOCK_TOKENS);
        }
    }
}

#[cfg(test)]
mod tests {
    use spillway_prefix::kv::kv_session_id;
    use spillway_types::{KvEvent, StoredBlocks};

    use super::*;
    use crate::router::CacheNews;

    #[test]
    fn each_target_holds_what_it_was_sent_up_to_its_size() {
        let mut index = CacheIndex::new(2, 4);
        index.insert(0, &[1, 2, 3]);
        index.insert(1, &[1, 9]);
        index.look_up(&[1, 2, 3, 4]);
        assert_eq!((index.blocks(0), index.blocks(1)), (3, 1));
        index.insert(0, &[11, 12, 13]);
        index.look_up(&[1, 2, 3]);
        assert_eq!(index.blocks(0), 1, "three of six blocks found no room");
    }

    #[test]
    fn what_engines_say_that_they_evicted_is_not_expected_any_more() {
        let mut index = CacheIndex::following_events(1, 6_400.0);
        let chain = [1, 2];
        index.sent(&Sent { request: 0, replica: 0, chain: &chain, is_own: true, now_ms: 0 });
        let stored = KvEvent::Stored(StoredBlocks {
            hashes: (100..108).collect(),
            parent: None,
            block_tokens: 16,
            session: kv_session_id(&chain),
            group: None,
        });
        let tell = |index: &mut CacheIndex, events: &[KvEvent], now_ms| {
            let news = CacheNews::Events(events);
            index.cache_told(&CacheReport { replica: 0, news, now_ms });
        };
        tell(&mut index, &[stored], 100);
        index.written(&Written {
            replica: 0,
            chain: &chain,
            prompt_blocks: 2,
            prompt_tokens: 128,
            cached_tokens: 0,
            reply_tokens: 2,
            now_ms: 200,
            is_own: true,
        });
        tell(&mut index, &[], 1_000);
        index.look_up(&chain);
        assert_eq!(index.blocks(0), 2);
        tell(&mut index, &[KvEvent::Removed { hashes: vec![107], group: None }], 1_100);
        index.look_up(&chain);
        assert_eq!(index.blocks(0), 1);
    }

    #[test]
    fn a_report_of_missing_blocks_takes_back_what_was_expected() {
        let mut index = CacheIndex::of_replicas(1, 6_400.0);
        let chain: Vec<u64> = (1..=8).collect();
        index.insert(0, &chain);
        index.correct(0, &chain, 0);
        index.insert(0, &chain);
        index.correct(0, &chain, 0);
        index.look_up(&[1, 2, 50]);
        assert_eq!(index.blocks(0), 2, "the replica has just computed them");
    }
}
