//! Paged KV cache: a fixed pool of blocks, some of which form a tree of reusable prefixes.
//!
//! A full block with known content is filed under (parent block, content hash), so a path from the
//! root is a prefix, and a request that pins a block pins all of its ancestors. Unpinned blocks
//! stay until their room is needed. Then the least recently used *leaf* is evicted, never an inner
//! block, because a prefix without its beginning is useless.

use std::collections::{BTreeMap, BTreeSet};

use crate::changes::{CacheChange, CacheChanges};
use crate::request::RequestId;

/// Position of a block in the pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct BlockId(u32);

/// Pool of all KV blocks of one engine.
#[derive(Debug)]
pub(crate) struct BlockPool {
    blocks: Vec<Block>,
    /// Blocks without content.
    free: Vec<BlockId>,
    /// Tree of cached blocks: (parent, content hash) → block.
    tree: BTreeMap<(Option<BlockId>, u64), BlockId>,
    /// Cached blocks without pins and without children, least recently used first.
    evictable_leaves: BTreeSet<(u64, BlockId)>,
    /// Number of cached blocks without pins, leaves or not.
    unpinned: u32,
    /// Number of releases so far: the clock for "least recently used".
    releases: u64,
    pub(crate) changes: CacheChanges,
}

/// State of one block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Block {
    // Free => Private
    Free,
    // Private => (Cached | Free)
    /// Pinned by exactly one request and not reusable: not full, or of unknown content.
    Private,
    // Cached => Free
    /// Part of the tree of reusable prefixes.
    Cached(Cached),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Cached {
    parent: Option<BlockId>,
    hash: u64,
    /// Hash of the block's content with all that is before it.
    path_hash: u64,
    pins: u32,
    children: u32,
    released: u64,
}

impl BlockPool {
    pub(crate) fn new(blocks: u32) -> Self {
        Self {
            blocks: vec![Block::Free; blocks as usize],
            // Taken from the end, so block 0 is handed out first.
            free: (0..blocks).rev().map(BlockId).collect(),
            tree: BTreeMap::new(),
            evictable_leaves: BTreeSet::new(),
            unpinned: 0,
            releases: 0,
            changes: CacheChanges::default(),
        }
    }

    /// Returns the number of all blocks.
    pub(crate) fn total(&self) -> u32 {
        u32::try_from(self.blocks.len()).unwrap_or(u32::MAX)
    }

    /// Returns the number of blocks that [`Self::allocate`] could hand out one after the other.
    pub(crate) fn available(&self) -> u32 {
        u32::try_from(self.free.len()).unwrap_or(u32::MAX) + self.unpinned
    }

    /// Returns the number of cached blocks without pins.
    pub(crate) fn unpinned(&self) -> u32 {
        self.unpinned
    }

    /// Finds the longest cached path that starts with `hashes`, at most `blocks_max` long. Pins
    /// nothing.
    pub(crate) fn longest_prefix(&self, hashes: &[u64], blocks_max: usize) -> Vec<BlockId> {
        let mut path = Vec::new();
        for hash in hashes.iter().take(blocks_max) {
            let Some(block) = self.tree.get(&(path.last().copied(), *hash)) else { break };
            path.push(*block);
        }
        path
    }

    /// Returns the number of blocks in `path` without pins: pinning `path` makes that many fewer
    /// available.
    pub(crate) fn unpinned_in(&self, path: &[BlockId]) -> u32 {
        let unpinned = path.iter().filter(|block| self.pins(**block) == 0).count();
        u32::try_from(unpinned).unwrap_or(u32::MAX)
    }

    /// Pins every block of a path that [`Self::longest_prefix`] found.
    pub(crate) fn pin_path(&mut self, path: &[BlockId]) {
        for block in path {
            self.pin(*block);
        }
    }

    /// Hands out a private block: a free one, or the least recently used leaf, which is evicted.
    /// Returns `None` if every block is pinned.
    pub(crate) fn allocate(&mut self) -> Option<BlockId> {
        let block = match self.free.pop() {
            Some(block) => block,
            None => self.evict()?,
        };
        self.blocks[index(block)] = Block::Private;
        Some(block)
    }

    /// Files a private block that is now full under its parent. Returns the block to use from now
    /// on: if another request has computed the same content in between, that request's block, and
    /// the private block becomes free. Equal content is thus never held twice, as in SGLang's radix
    /// tree; vLLM keeps the copy.
    pub(crate) fn file(
        &mut self,
        request: RequestId,
        block: BlockId,
        parent: Option<BlockId>,
        hash: u64,
    ) -> BlockId {
        debug_assert_eq!(self.blocks[index(block)], Block::Private);
        if let Some(twin) = self.tree.get(&(parent, hash)).copied() {
            self.pin(twin);
            self.make_free(block);
            return twin;
        }
        let before = parent.and_then(|parent| self.cached_mut(parent)).map(|it| it.path_hash);
        let path_hash = block_hash_behind(before, hash);
        let cached = Cached { parent, hash, path_hash, pins: 1, children: 0, released: 0 };
        self.changes.note(CacheChange::Stored { request, block: path_hash, parent: before });
        self.blocks[index(block)] = Block::Cached(cached);
        self.tree.insert((parent, hash), block);
        // A parent with children is no leaf, so it can't be evicted before them.
        if let Some(parent) = parent.and_then(|parent| self.cached_mut(parent)) {
            parent.children += 1;
        }
        block
    }

    /// Unpins all blocks of one request. All get the same age; among them, eviction goes from leaf
    /// to root anyway.
    pub(crate) fn release(&mut self, blocks: &[BlockId]) {
        self.releases += 1;
        for block in blocks {
            match self.blocks[index(*block)] {
                Block::Private => self.make_free(*block),
                Block::Cached(_) => self.unpin(*block),
                Block::Free => debug_assert!(false, "a pinned block is never free: {block:?}"),
            }
        }
    }

    /// Drops every cached block without pins. Returns the number of dropped blocks.
    pub(crate) fn flush(&mut self) -> u32 {
        let mut flushed = 0;
        while let Some(block) = self.evict() {
            self.make_free(block);
            flushed += 1;
        }
        flushed
    }

    fn pins(&self, block: BlockId) -> u32 {
        match self.blocks[index(block)] {
            Block::Free => 0,
            Block::Private => 1,
            Block::Cached(cached) => cached.pins,
        }
    }

    fn cached_mut(&mut self, block: BlockId) -> Option<&mut Cached> {
        match &mut self.blocks[index(block)] {
            Block::Cached(cached) => Some(cached),
            Block::Free | Block::Private => None,
        }
    }

    fn pin(&mut self, block: BlockId) {
        let Some(cached) = self.cached_mut(block) else { return };
        cached.pins += 1;
        let (first, leaf, released) = (cached.pins == 1, cached.children == 0, cached.released);
        if first {
            self.unpinned -= 1;
            // Most blocks of a path are no leaves, and need not be looked for among these.
            if leaf {
                self.evictable_leaves.remove(&(released, block));
            }
        }
    }

    fn unpin(&mut self, block: BlockId) {
        let releases = self.releases;
        let Some(cached) = self.cached_mut(block) else { return };
        cached.pins -= 1;
        cached.released = releases;
        let (last, leaf) = (cached.pins == 0, cached.children == 0);
        if last {
            self.unpinned += 1;
            if leaf {
                self.evictable_leaves.insert((releases, block));
            }
        }
    }

    /// Takes the least recently used leaf out of the tree; its parent may become a leaf.
    fn evict(&mut self) -> Option<BlockId> {
        let (_, block) = self.evictable_leaves.pop_first()?;
        let Block::Cached(cached) = self.blocks[index(block)] else {
            debug_assert!(false, "only cached blocks are leaves: {block:?}");
            return None;
        };
        self.tree.remove(&(cached.parent, cached.hash));
        self.changes.note(CacheChange::Removed { block: cached.path_hash });
        self.unpinned -= 1;
        if let Some(parent_id) = cached.parent
            && let Some(parent) = self.cached_mut(parent_id)
        {
            parent.children -= 1;
            if parent.children == 0 && parent.pins == 0 {
                let released = parent.released;
                self.evictable_leaves.insert((released, parent_id));
            }
        }
        Some(block)
    }

    fn make_free(&mut self, block: BlockId) {
        self.blocks[index(block)] = Block::Free;
        self.free.push(block);
    }
}

/// Returns the hash of a block's content with that of the blocks before it.
fn block_hash_behind(before: Option<u64>, hash: u64) -> u64 {
    let mixed = before.unwrap_or(0).rotate_left(23) ^ hash.wrapping_mul(0x9E37_79B9_7F4A_7C15);
    (mixed ^ (mixed >> 32)).wrapping_mul(0xD6E8_FEB8_6659_FD93)
}

fn index(block: BlockId) -> usize {
    block.0 as usize
}

#[cfg(test)]
#[path = "kv_property_test.rs"]
mod kv_property_test;
#[cfg(test)]
#[path = "kv_test.rs"]
mod kv_test;
