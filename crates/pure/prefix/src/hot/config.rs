//! Settings of heat: which blocks count as hot.

use serde::{Deserialize, Serialize};

/// Settings of a [`HeatTracker`](crate::HeatTracker).
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct HeatConfig {
    /// Largest number of blocks that a region announces, from 16 to 16,384.
    ///
    /// With much sharing between regions, 4,096 were too few in tests. All regions together have
    /// room for eight times 16,384.
    pub blocks_max: usize,
    /// Half-life of heat in milliseconds, at least 1,000.
    ///
    /// A shorter half-life follows a change of traffic sooner and announces more: blocks requested
    /// every few minutes would be announced and removed by chance. Blocks that replicas have
    /// dropped leave at once anyway.
    pub half_life_ms: u64,
    /// Heat in requests, decayed, that a block needs to be announced. It leaves below half of that.
    pub heat_min: f32,
}

impl Default for HeatConfig {
    /// Returns 16,384 blocks, 10 minutes, 3 requests.
    fn default() -> Self {
        Self { blocks_max: 16_384, half_life_ms: 600_000, heat_min: 3.0 }
    }
}
