//! Hashing of a prompt while it arrives.

use std::fmt;

use highway::{HighwayHash, HighwayHasher, Key};
use spillway_types::BlockHashes;

use crate::PrefixConfig;

/// Hasher of a prompt that arrives in pieces; how it is cut makes no difference.
///
/// One hasher runs over the whole prompt, and a copy of it is finished at the end of each block:
/// entry `i` is the keyed hash of all bytes up to the end of block `i`. Two different prefixes
/// collide only as any two inputs of HighwayHash-64 do. The usual design makes the last block's
/// hash part of the next block's key or input. It squeezes the past through that hash at every
/// block, so one collision makes all longer prefixes collide too. It is also slower: each block
/// waits for the one before to be finished, while here the copies are finished beside the running
/// hasher. 1 MiB on one core of an AMD EPYC (Zen 5): 8.6 GB/s this way, 4.5 with the last hash in
/// the key, 4.0 with it appended, 2.6 with hashed blocks combined later; 9.6 without any blocks.
#[derive(Clone)]
pub struct PrefixStream {
    hasher: HighwayHasher,
    config: PrefixConfig,
    /// Bytes of the current block that `hasher` has seen; fewer than `block_bytes`.
    block_filled_bytes: usize,
    /// Number of blocks whose hashes were taken by [`take_blocks`](Self::take_blocks).
    blocks_taken: usize,
    chain: Vec<u64>,
}

impl PrefixStream {
    pub(crate) fn new(key: Key, config: PrefixConfig) -> Self {
        Self {
            hasher: HighwayHasher::new(key),
            config,
            block_filled_bytes: 0,
            blocks_taken: 0,
            chain: Vec::new(),
        }
    }

    /// Reserves room for the hashes of `prompt_bytes` bytes.
    pub(crate) fn reserve(&mut self, prompt_bytes: usize) {
        self.chain.reserve((prompt_bytes / self.config.block_bytes).min(self.config.blocks_max));
    }

    /// Adds the next piece of the prompt, of any length.
    pub fn update(&mut self, mut piece: &[u8]) {
        while self.blocks_taken + self.chain.len() < self.config.blocks_max {
            let missing_bytes = self.config.block_bytes - self.block_filled_bytes;
            let Some((head, tail)) = piece.split_at_checked(missing_bytes) else {
                self.hasher.append(piece);
                self.block_filled_bytes += piece.len();
                return;
            };
            self.hasher.append(head);
            // A copy is finished, so that the running hasher goes on over all bytes.
            self.chain.push(self.hasher.clone().finalize64());
            self.block_filled_bytes = 0;
            piece = tail;
        }
    }

    /// Returns the hashes of all full blocks so far, or since the last call. The stream then goes on:
    /// text that follows the prompt continues its chain.
    #[must_use]
    pub fn take_blocks(&mut self) -> BlockHashes {
        self.blocks_taken += self.chain.len();
        BlockHashes::new(std::mem::take(&mut self.chain))
    }

    /// Returns the hashes of all full blocks since the last [`take_blocks`](Self::take_blocks); the
    /// rest in a last, partial block is not hashed.
    #[must_use]
    pub fn finish(self) -> BlockHashes {
        BlockHashes::new(self.chain)
    }
}

// Written by hand: the state of the hasher would reveal the key.
impl fmt::Debug for PrefixStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PrefixStream").field("blocks", &self.chain.len()).finish_non_exhaustive()
    }
}
