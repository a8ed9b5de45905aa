//! Memory of the prompts that a node sent to other regions.

use std::collections::BTreeMap;

use super::rule::News;
use crate::router::cache_index::CacheIndex;
use crate::text::{BLOCK_TOKENS, BYTES_PER_TOKEN};

/// Characters that the tree of one target holds at most: `max_tree_size` of SkyWalker's code.
const TREE_CHARS_MAX: u32 = 1 << 24;

/// Tree of this node's own forwards, and those of them that were not answered yet.
///
/// SkyWalker and GORGO know nothing else of the caches of other regions: no message corrects the
/// tree.
#[derive(Debug)]
pub(super) struct Forwards {
    tree: CacheIndex,
    unanswered: BTreeMap<usize, usize>,
    counts: Vec<u32>,
}

impl Forwards {
    pub(super) fn new(regions: usize) -> Self {
        let blocks_max = TREE_CHARS_MAX / (BYTES_PER_TOKEN * BLOCK_TOKENS);
        Self {
            tree: CacheIndex::new(regions, blocks_max),
            unanswered: BTreeMap::new(),
            counts: vec![0; regions],
        }
    }

    /// Looks up a prompt, for the calls of [`Forwards::blocks`] that follow.
    pub(super) fn look_up(&mut self, chain: &[u64]) {
        self.tree.look_up(chain);
    }

    /// Returns the leading blocks of the prompt that were sent to a region.
    pub(super) fn blocks(&self, region: usize) -> u32 {
        self.tree.blocks(region)
    }

    /// Returns the requests of this node in a region that were not answered yet.
    pub(super) fn count(&self, region: usize) -> u32 {
        self.counts[region]
    }

    /// Notes that a request goes to a region.
    pub(super) fn send(&mut self, request: usize, region: usize, chain: &[u64]) {
        self.tree.insert(region, chain);
        self.counts[region] += 1;
        self.unanswered.insert(request, region);
    }

    /// Notes news of a request.
    pub(super) fn note(&mut self, news: &News<'_>) {
        // A request that comes back is served here, or has ended: it leaves either way.
        if let News::Left(request) = news
            && let Some(region) = self.unanswered.remove(request)
        {
            self.counts[region] -= 1;
        }
    }
}
