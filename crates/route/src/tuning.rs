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

/// How much each term of the score counts against the others; 0 leaves it out. What is negative or
/// not finite counts as 0.
///
/// Queue and latency are relative to the mean of the group, GPU and KV cache are shares from 0 to
/// 1: with equal weights a queue above the mean by once the mean counts as much as a cache that is
/// full instead of empty.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct LeastLoadedWeights {
    /// Requests waiting and running there, for the replica's weight. It alone spreads requests by
    /// their number.
    pub queue: f32,
    /// Share of time the GPU is busy. More than the queue's weight follows late reports too eagerly.
    pub gpu: f32,
    /// Share of the KV cache in use. Raise it where long prompts fill a cache before the queue
    /// shows it.
    pub kv: f32,
    /// Milliseconds to the first byte. Raise it where replicas are of unequal speed: with less than
    /// the queue's weight, a slow one gets requests because its queue is short.
    pub latency: f32,
}

impl Default for LeastLoadedWeights {
    fn default() -> Self {
        Self { queue: 1.0, gpu: 0.5, kv: 0.5, latency: 1.0 }
    }
}
