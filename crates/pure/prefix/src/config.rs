//! Settings of prompt hashing: size and number of blocks.

/// Size and number of the blocks of a prompt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PrefixConfig {
    /// Bytes of prompt per block: a multiple of 32 from 32 to 65,536.
    ///
    /// Smaller blocks find shorter common prefixes and cost more to hash and to remember. All nodes
    /// that share hashes need the same value, or only some of their hashes match.
    pub block_bytes: usize,
    /// Largest number of blocks of one prompt, from 1 to 1,048,576. Bytes behind them are not
    /// hashed.
    ///
    /// Prompts that differ only behind these blocks look equal. The chosen replica is then no
    /// better than one chosen by the common part.
    pub blocks_max: usize,
}

impl Default for PrefixConfig {
    /// Returns 256 bytes, which are about 64 tokens or four engine blocks of the usual 16 tokens,
    /// and 4,096 blocks, which are 1 MiB.
    fn default() -> Self {
        Self { block_bytes: 256, blocks_max: 4_096 }
    }
}

impl PrefixConfig {
    /// Returns the values unchanged if they are within their limits.
    ///
    /// # Errors
    /// Returns the first value that is outside its limits.
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

/// Error: a [`PrefixConfig`] value is outside its limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PrefixConfigError {
    /// The block size is not a multiple of 32, or too small or too large.
    #[error("block_bytes must be a multiple of 32 from 32 to 65536, not {0}")]
    BlockBytes(usize),
    /// The number of blocks is zero or too large.
    #[error("blocks_max must be from 1 to 1048576, not {0}")]
    BlocksMax(usize),
}
