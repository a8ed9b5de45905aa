//! What travels: one hot block, and a change of what is hot.

use serde::{Deserialize, Serialize};

/// A block that many requests to a region share.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HotBlock {
    /// Its chained keyed hash.
    pub hash: u64,
    /// The hash of the block before it; 0 if it is the first of its prompt.
    pub parent: u64,
    /// Its place in the prompt: 1 is the first block.
    pub depth: u16,
    /// How hot it is: twice the binary logarithm of its heat, the requests that asked
    /// for it with older ones counting less.
    pub heat: u8,
}

/// What became hot or cold in one region, for [`HotTrie::apply`](crate::HotTrie::apply).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HotDelta {
    /// Blocks that became hot or changed their heat, parents before their children.
    pub enter: Vec<HotBlock>,
    /// Hashes of blocks that are hot no more.
    pub leave: Vec<u64>,
}

impl HotDelta {
    /// Most blocks of each list that is looked at: 1,900 records of at most 22 bytes and as many
    /// hashes of 9 bytes stay below 60 KiB, so that an entry of the log with 64 KiB has room.
    pub const RECORDS_MAX: usize = 1_900;

    /// Whether it changes nothing.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.enter.is_empty() && self.leave.is_empty()
    }
}
