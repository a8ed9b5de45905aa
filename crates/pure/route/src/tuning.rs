//! Settings of policies.

use serde::{Deserialize, Serialize};

/// Settings of every policy that has some; each policy reads its own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Tuning {
    /// Weights of the terms of [`Policy::LeastLoaded`].
    ///
    /// [`Policy::LeastLoaded`]: crate::Policy
    pub least_loaded: LeastLoadedWeights,
    /// Settings of [`Policy::PredictedLatency`].
    ///
    /// [`Policy::PredictedLatency`]: crate::Policy
    pub predicted: PredictedTuning,
    /// Settings of [`Policy::PrefixAware`].
    ///
    /// [`Policy::PrefixAware`]: crate::Policy
    pub prefix_aware: PrefixAwareTuning,
    /// Settings of [`Policy::Prequal`].
    ///
    /// [`Policy::Prequal`]: crate::Policy
    pub prequal: PrequalTuning,
}

/// Settings of the policy that predicts. A number that is negative or not finite counts as 0.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct PredictedTuning {
    /// Bytes of prompt in one block of [`Inquiry::prefix`]; as in the hasher.
    ///
    /// [`Inquiry::prefix`]: spillway_types::Inquiry::prefix
    pub block_bytes: u32,
    /// Event that should come soonest.
    pub goal: Goal,
    /// Condition for sending a request to a replica.
    pub push: Push,
    /// Cost of reading a prompt to each request that runs there, as a part of the reading time:
    /// their next tokens are held up. A larger value follows caches further and sends long uncached
    /// prompts to emptier replicas. At 1 a prefix that nearly all share stays on a few replicas
    /// while the others idle; at 0 requests wait longest in every simulation.
    pub kappa: f32,
    /// Part by which each running request slows generation for all others there. A larger value
    /// evens out the number of requests, a smaller one follows caches.
    pub crowding: f32,
    /// Expected tokens of a reply if its client does not set fewer. Choose about the mean of the
    /// route's replies.
    pub output_tokens: u32,
    /// Value in milliseconds of staying on the session's replica, in addition to what is known to
    /// be cached there.
    pub session_ms: f32,
    /// Largest difference in milliseconds within which the prompt decides, alike on every node. A
    /// larger value keeps prompts together that no cache has yet, and balances less.
    pub tie_ms: f32,
}

/// Event that a prediction is about.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Goal {
    /// The first token.
    #[default]
    FirstToken,
    /// The whole reply: the first token, and generating the rest. For replies that are used only
    /// when they are complete.
    Total,
}

/// Condition for sending a request to a replica. Until then the request waits in the node, from
/// where it can still go elsewhere. Requests without a model never wait, so they are always sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Push {
    /// Send while the replica's KV cache is predicted to hold the request; where its size is
    /// unknown, while hardly anything waits there.
    #[default]
    Fit,
    /// Send at once.
    Always,
    /// Send while nothing waits there. For comparison: this leaves replicas idle between reports.
    NoPending,
}

/// Settings of the policy that follows the longest cached prefix. A number that is negative or not
/// finite counts as 0.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct PrefixAwareTuning {
    /// Least share of the prompt's blocks, in thousandths, that the best cache must hold to be
    /// followed; below it the load decides.
    pub match_permille_min: u16,
    /// Least excess of requests at the busiest replica over the idlest with which load decides,
    pub imbalance_min: f32,
    /// and least ratio of the two; load decides if both are exceeded.
    pub imbalance_ratio_min: f32,
}

/// Settings of the policy of hot and cold replicas.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct PrequalTuning {
    /// Replicas that are drawn for each request, 1 to 64. A larger value finds better ones and
    /// takes more time.
    pub probes: u8,
    /// Share of the drawn replicas, in thousandths, that must have fewer requests in flight for a
    /// replica to be hot. At 0 requests in flight alone decide, at 1000 latency alone.
    pub cold_permille: u16,
}

impl Default for PredictedTuning {
    fn default() -> Self {
        Self {
            block_bytes: 256,
            goal: Goal::FirstToken,
            push: Push::Fit,
            kappa: 0.3,
            crowding: 0.001,
            output_tokens: 256,
            session_ms: 100.0,
            tie_ms: 2.0,
        }
    }
}

impl Default for PrefixAwareTuning {
    fn default() -> Self {
        Self { match_permille_min: 500, imbalance_min: 32.0, imbalance_ratio_min: 1.1 }
    }
}

impl Default for PrequalTuning {
    fn default() -> Self {
        Self { probes: 16, cold_permille: 840 }
    }
}

/// Weights of the terms of a score against each other; 0 leaves a term out. A weight that is
/// negative or not finite counts as 0.
///
/// Queue and latency are relative to the mean of the group, GPU and KV cache are shares from 0 to
/// 1: with equal weights a queue of twice the mean counts as much as a cache that is full instead
/// of empty.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct LeastLoadedWeights {
    /// Weight of the requests that wait and run there, divided by the replica's weight. This term
    /// alone spreads requests by their number.
    pub queue: f32,
    /// Weight of the share of time that the GPU is busy. With more than the queue's weight, late
    /// reports are followed too eagerly.
    pub gpu: f32,
    /// Weight of the share of the KV cache in use. Raise it where long prompts fill a cache before
    /// the queue shows it.
    pub kv: f32,
    /// Weight of the milliseconds to the first byte. Raise it where replicas differ in speed: with
    /// less than the queue's weight, a slow one gets requests because its queue is short.
    pub latency: f32,
}

impl Default for LeastLoadedWeights {
    fn default() -> Self {
        Self { queue: 1.0, gpu: 0.5, kv: 0.5, latency: 1.0 }
    }
}
