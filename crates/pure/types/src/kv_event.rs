//! KV events: what an engine says of its prefix cache.

/// Change of an engine's prefix cache.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KvEvent {
    /// Blocks were stored.
    Stored(StoredBlocks),
    /// Blocks with these hashes were evicted.
    Removed {
        /// Hashes of the blocks.
        hashes: Vec<u64>,
        /// Group of layers; `None` if the engine has one group.
        group: Option<u32>,
    },
    /// All blocks were dropped.
    Cleared,
}

/// Blocks that an engine stored, one behind the other.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StoredBlocks {
    /// Hashes of the blocks, in the order of the prompt.
    pub hashes: Vec<u64>,
    /// Hash of the block before the first one; `None` at the beginning of a prompt.
    pub parent: Option<u64>,
    /// Tokens of each block.
    pub block_tokens: u32,
    /// Id of the request that stored them, as the request gave it; `None` if it gave none, or the
    /// engine does not report it.
    pub session: Option<String>,
    /// Group of layers; `None` if the engine has one group.
    pub group: Option<u32>,
}
