//! How much the fine index may remember.

use serde::{Deserialize, Serialize};

/// Limits of a [`FineIndex`](crate::FineIndex).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct IndexConfig {
    /// Most bytes that the index takes, counted with all its tables; at least 1 MiB is used.
    ///
    /// A block at a replica takes at most 48 bytes. So choose 48 times the number of replicas
    /// times what one of them caches in blocks: 1,000 replicas with 500,000 tokens each, in blocks
    /// of 64 tokens, are 360 MiB. With less, what was used longest ago is forgotten first.
    pub bytes_max: usize,
    /// Blocks that a replica's cache is taken to hold until something better is known.
    ///
    /// 16,384 blocks of 256 bytes are about a million tokens. Too large a number makes the index
    /// believe in blocks that are long gone; replies that tell what was cached correct it.
    pub holder_blocks_default: u32,
}

impl Default for IndexConfig {
    /// 128 MiB: 2.8 million blocks at replicas.
    fn default() -> Self {
        Self { bytes_max: 128 << 20, holder_blocks_default: 16_384 }
    }
}
