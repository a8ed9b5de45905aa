//! How finely and how far prompts are hashed.

/// Size and number of the blocks of a prompt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PrefixConfig {
    /// Bytes of prompt per block: a multiple of 32 from 32 to 65,536.
    ///
    /// Smaller blocks find shorter common prefixes and cost more to hash and to remember. It has
    /// to be the same on every node that shares hashes, or only some of them will match.
    pub block_bytes: usize,
    /// Most blocks of one prompt; what follows them is not hashed. From 1 to 1,048,576.
    ///
    /// Two prompts that differ only after so many blocks look the same, which costs a choice of
    /// replica that is no better than for the part they share.
    pub blocks_max: usize,
}

impl Default for PrefixConfig {
    /// 256 bytes are about 64 tokens, four cache blocks of the usual 16; 4,096 of them are 1 MiB.
    fn default() -> Self {
        Self { block_bytes: 256, blocks_max: 4_096 }
    }
}

impl PrefixConfig {
    /// The same values, if they are within their limits.
    pub(crate) fn checked(self) -> Result<Self, PrefixConfigError> {
        let Self { block_bytes, blocks_max } = self;
        if !block_bytes.is_multiple_of(32) || !(32..=65_536).contains(&block_bytes) {
            return Err(PrefixConfigError::BlockBytes(block_bytes));
        }
        if !(1..=1_048_576).contains(&blocks_max) {
            return Err(PrefixConfigError::BlocksMax(blocks_max));
        }
        Ok(self)
    }
}

/// A [`PrefixConfig`] value outside its limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PrefixConfigError {
    /// The block size is not a multiple of 32, or too small or too large.
    #[error("block_bytes must be a multiple of 32 from 32 to 65536, not {0}")]
    BlockBytes(usize),
    /// The number of blocks is zero or too large.
    #[error("blocks_max must be from 1 to 1048576, not {0}")]
    BlocksMax(usize),
}
