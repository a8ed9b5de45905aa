//! What a prompt looks like to everything that must not see the prompt.

/// Chained keyed hashes of a prompt's blocks: entry `i` stands for blocks `0..=i` together.
///
/// Two prompts share a prefix of `n` blocks exactly if their first `n` entries are equal.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BlockHashes(Vec<u64>);

impl BlockHashes {
    /// Wraps chain hashes, first block first.
    #[must_use]
    pub fn new(chain: Vec<u64>) -> Self {
        Self(chain)
    }

    /// The chain, first block first.
    #[must_use]
    pub fn as_slice(&self) -> &[u64] {
        &self.0
    }
}
