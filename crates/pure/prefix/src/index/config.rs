//! Limits of the fine index.

use serde::{Deserialize, Serialize};

/// Limits of a [`FineIndex`](crate::FineIndex).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct IndexConfig {
    /// Largest number of bytes of the index with all its tables; at least 1 MiB is used.
    ///
    /// A block at a replica takes at most 48 bytes. Multiply 48 by the number of replicas and by
    /// the blocks that one of them caches: 1,000 replicas with 500,000 tokens each, in blocks of 64
    /// tokens, need 360 MiB. With less, the least recently used blocks are forgotten first.
    pub bytes_max: usize,
    /// Number of blocks that a replica's cache is assumed to hold until its capacity is known.
    ///
    /// 16,384 blocks of 256 bytes are about a million tokens. A number that is too large makes the
    /// index believe in blocks that are long gone; replies that report cached tokens correct it.
    pub holder_blocks_default: u32,
}

impl Default for IndexConfig {
    /// Returns 128 MiB, which is room for 2.8 million pairs of block and replica, and 16,384
    /// blocks.
    fn default() -> Self {
        Self { bytes_max: 128 << 20, holder_blocks_default: 16_384 }
    }
}
