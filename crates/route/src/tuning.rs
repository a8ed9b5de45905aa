//! Settings of the policies that have some.

use serde::{Deserialize, Serialize};

/// Settings of every policy that has some; each policy reads its own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Tuning {
    /// What [`Policy::LeastLoaded`] makes of its terms.
    ///
    /// [`Policy::LeastLoaded`]: crate::Policy
    pub least_loaded: LeastLoadedWeights,
}

/// How much each term counts; 0 leaves it out.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct LeastLoadedWeights {
    /// Requests waiting and running there.
    pub queue: f32,
    /// Share of time the GPU is busy.
    pub gpu: f32,
    /// Share of the KV cache in use.
    pub kv: f32,
    /// Time to first byte.
    pub latency: f32,
}

impl Default for LeastLoadedWeights {
    fn default() -> Self {
        Self { queue: 1.0, gpu: 1.0, kv: 1.0, latency: 1.0 }
    }
}
