//! Replicated data: one hot block, and a change of the set of hot blocks.

use serde::{Deserialize, Serialize};

/// Block that many requests to a region share.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HotBlock {
    /// Chained keyed hash of the block.
    pub hash: u64,
    /// Hash of the block before; 0 for the first block of a prompt.
    pub parent: u64,
    /// Position in the prompt: 1 is the first block.
    pub depth: u16,
    /// Heat as twice its binary logarithm. Heat is the number of requests for the block, in which
    /// older requests count less.
    pub heat: u8,
}

/// Blocks that became hot or cold in one region, for [`HotTrie::apply`](crate::HotTrie::apply).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HotDelta {
    /// Blocks that became hot or changed their heat, parents before their children.
    pub enter: Vec<HotBlock>,
    /// Hashes of blocks that are no longer hot.
    pub leave: Vec<u64>,
}

impl HotDelta {
    /// Largest number of blocks that count in each list. 1,900 records of at most 22 bytes and as
    /// many hashes of 9 bytes stay below 60 KiB, so that they fit a log entry of 64 KiB.
    pub const RECORDS_MAX: usize = 1_900;

    /// Returns true if the delta changes nothing.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.enter.is_empty() && self.leave.is_empty()
    }
}
