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
    /// What [`Policy::PredictedLatency`] goes by.
    ///
    /// [`Policy::PredictedLatency`]: crate::Policy
    pub predicted: PredictedTuning,
    /// What [`Policy::PrefixAware`] goes by.
    ///
    /// [`Policy::PrefixAware`]: crate::Policy
    pub prefix_aware: PrefixAwareTuning,
    /// What [`Policy::Prequal`] goes by.
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
    /// What is to come soonest.
    pub goal: Goal,
    /// When a replica is given a request at all.
    pub push: Push,
    /// What reading a prompt costs the requests that run there, each, as a part of the time it
    /// takes: it holds up their next tokens. More follows caches further and sends long prompts that
    /// are cached nowhere to emptier replicas; at 1 a prefix that nearly all share stays on a few
    /// replicas while the others idle, at 0 requests wait longest in every simulation.
    pub kappa: f32,
    /// Part by which each request that runs makes generating slower for all others there. More
    /// evens out the number of requests, less follows caches.
    pub crowding: f32,
    /// Tokens that a reply is expected to have if its client does not set fewer. About the mean of
    /// the route's replies.
    pub output_tokens: u32,
    /// Milliseconds that staying on the session's replica is worth, beside what is known to be cached
    /// there.
    pub session_ms: f32,
    /// Milliseconds that a replica of which no load is known costs more than one like the others.
    pub doubt_ms: f32,
    /// Milliseconds of difference within which the prompt decides, the same on every node. More
    /// keeps prompts together that nobody has in a cache yet, and evens out less.
    pub tie_ms: f32,
}

/// What a prediction is about.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Goal {
    /// The first token.
    #[default]
    FirstToken,
    /// The whole reply: the first token, and generating the rest. For replies that nobody reads
    /// before they are whole.
    Total,
}

/// When a replica is given a request; what it is not given waits in the node, from where it can
/// still go elsewhere. Requests that have no model never wait, so they are always given.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Push {
    /// While its KV cache is predicted to hold it; where the size of that is unknown, while hardly
    /// anything waits there.
    #[default]
    Fit,
    /// At once.
    Always,
    /// While nothing waits there. For comparison: it leaves replicas idle between reports.
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
    /// Load decides if the busiest replica has this many requests more than the idlest,
    pub imbalance_min: f32,
    /// and this many times as many.
    pub imbalance_ratio_min: f32,
}

/// Settings of the policy of hot and cold replicas.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct PrequalTuning {
    /// Replicas looked at for each request, 1 to 64. More finds better ones and costs more time.
    pub probes: u8,
    /// A replica is hot if more than this share of those looked at, in thousandths, have fewer
    /// requests in flight. At 0 requests in flight alone decide, at 1000 latency alone.
    pub cold_permille: u16,
}

impl Default for PredictedTuning {
    fn default() -> Self {
        Self {
            block_bytes: 256,
            goal: Goal::FirstToken,
            push: Push::Fit,
            kappa: 0.3,
            crowding: 0.005,
            output_tokens: 256,
            session_ms: 100.0,
            doubt_ms: 5.0,
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
