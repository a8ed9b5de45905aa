//! What counts as hot.

use serde::{Deserialize, Serialize};

/// Settings of a [`HeatTracker`](crate::HeatTracker).
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct HeatConfig {
    /// Most blocks that a region tells of. From 16 to 16,384.
    ///
    /// Under much sharing between regions 4,096 were seen to be too few; all regions together
    /// have room for eight times 16,384.
    pub blocks_max: usize,
    /// After so long without a request a block has half its heat. At least 1 second.
    ///
    /// Shorter follows a change of traffic sooner, and tells more: what is asked for every few
    /// minutes would come and go with chance. What replicas have dropped leaves at once anyway.
    pub half_life_ms: u64,
    /// Requests, decayed, that a block needs to be told of; it leaves below half of that.
    pub heat_min: f32,
}

impl Default for HeatConfig {
    /// 16,384 blocks, 10 minutes, 3 requests.
    fn default() -> Self {
        Self { blocks_max: 16_384, half_life_ms: 600_000, heat_min: 3.0 }
    }
}
