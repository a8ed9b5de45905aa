//! Index of caches: the blocks that each of some targets is expected to hold.

use spillway_prefix::{FineIndex, IndexConfig, IndexReader, Matches};
use spillway_types::Holder;

use super::memory::BLOCK_TOKENS;
use crate::text::mix;

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
        Self { index, reader, holders, matches: Matches::new() }
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

    /// Corrects what was expected of a target by what it reported of a prompt.
    pub(super) fn correct(&mut self, target: usize, chain: &[u64], cached_tokens: u32) {
        if let Some(holder) = self.holders[target] {
            self.index.correct(holder, chain, cached_tokens / BLOCK_TOKENS);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
