//! Hashes that represent a prompt wherever the prompt itself must not be seen.

use std::sync::Arc;

/// Chained keyed hashes of a prompt's blocks: entry `i` represents blocks `0..=i` together.
///
/// Cheap to clone: the index and the records of a request share it.
///
/// Two prompts share a prefix of `n` blocks exactly if their first `n` entries are equal.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BlockHashes(Arc<[u64]>);

impl BlockHashes {
    /// Wraps chain hashes, first block first.
    #[must_use]
    pub fn new(chain: Vec<u64>) -> Self {
        Self(chain.into())
    }

    /// Returns the chain, first block first.
    #[must_use]
    pub fn as_slice(&self) -> &[u64] {
        &self.0
    }
}
