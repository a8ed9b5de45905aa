//! Settings of routing policies, as a route states them.

use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize};
use spillway_route::{
    Goal, LeastLoadedWeights, PredictedTuning, PrefixAwareTuning, PrequalTuning, Push,
};

/// Weights of the terms in the score of `least_loaded`; 0 leaves a term out.
#[derive(Clone, Copy, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct LeastLoadedSection {
    /// Requests waiting and running, against the mean of the group.
    pub(crate) queue: f32,
    /// Share of time the GPU is busy.
    pub(crate) gpu: f32,
    /// Share of the KV cache in use.
    pub(crate) kv: f32,
    /// Time to the first byte, against the mean of the group.
    pub(crate) latency: f32,
}

/// Settings of the policy `predicted_latency`.
#[derive(Clone, Copy, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct PredictedLatencySection {
    /// Time to minimise: to the first token, or to the end of the reply where no client reads
    /// along.
    pub(crate) goal: GoalName,
    /// Condition for giving a replica a request: it is predicted to fit into the KV cache, nothing
    /// waits there, or no condition at all.
    pub(crate) push: PushName,
    /// Cost of reading a prompt for each request that runs there, as a part of the time that the
    /// reading takes.
    #[serde(deserialize_with = "weight")]
    pub(crate) kappa: f32,
    /// Part by which each running request slows the generation of the others.
    #[serde(deserialize_with = "weight")]
    pub(crate) crowding: f32,
    /// Tokens that a reply is expected to have before replies have shown it, if its client does not set
    /// fewer.
    pub(crate) output_tokens: u32,
    /// Value in ms of staying on a session's replica, beside what is known to be cached there.
    #[serde(deserialize_with = "weight")]
    pub(crate) session_ms: f32,
    /// Difference in ms within which the prompt decides, with equal results on every node.
    #[serde(deserialize_with = "weight")]
    pub(crate) tie_ms: f32,
}

/// Names of [`Goal`].
#[derive(Clone, Copy, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum GoalName {
    /// The first token.
    FirstToken,
    /// The whole reply.
    Total,
}

/// Names of [`Push`].
#[derive(Clone, Copy, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum PushName {
    /// Push while the replica's KV cache is predicted to hold the request.
    Fit,
    /// Push at once.
    Always,
    /// Push while nothing waits there; for comparison.
    NoPending,
}

/// Settings of the policy `prefix_aware`.
#[derive(Clone, Copy, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct PrefixAwareSection {
    /// Least share of a prompt, in thousandths, that a cache must hold to be followed.
    pub(crate) match_permille_min: u16,
    /// Least difference in requests between the busiest and the idlest replica with which load
    /// decides.
    #[serde(deserialize_with = "weight")]
    pub(crate) imbalance_min: f32,
    /// Least ratio of requests between the busiest and the idlest replica with which load decides;
    /// both conditions must hold.
    #[serde(deserialize_with = "weight")]
    pub(crate) imbalance_ratio_min: f32,
}

/// Settings of the policy `prequal`.
#[derive(Clone, Copy, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct PrequalSection {
    /// Number of replicas looked at for each request, 1 to 64.
    #[serde(deserialize_with = "probes")]
    #[schemars(range(min = 1, max = 64))]
    pub(crate) probes: u8,
    /// Share of the replicas looked at, in thousandths, above which a replica is hot: more than
    /// this share have fewer requests in flight.
    pub(crate) cold_permille: u16,
}

/// Reads a number that weighs something: neither negative nor infinite.
fn weight<'de, D: Deserializer<'de>>(deserializer: D) -> Result<f32, D::Error> {
    let number = f32::deserialize(deserializer)?;
    if number.is_finite() && number >= 0.0 {
        return Ok(number);
    }
    Err(serde::de::Error::custom(format!("{number} is no weight: use a number from 0 on")))
}

fn probes<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u8, D::Error> {
    let probes = u8::deserialize(deserializer)?;
    if (1..=64).contains(&probes) {
        return Ok(probes);
    }
    Err(serde::de::Error::custom(format!("{probes} replicas can't be looked at: use 1 to 64")))
}

impl Default for LeastLoadedSection {
    fn default() -> Self {
        let LeastLoadedWeights { queue, gpu, kv, latency } = LeastLoadedWeights::default();
        Self { queue, gpu, kv, latency }
    }
}

impl From<LeastLoadedSection> for LeastLoadedWeights {
    fn from(section: LeastLoadedSection) -> Self {
        let LeastLoadedSection { queue, gpu, kv, latency } = section;
        Self { queue, gpu, kv, latency }
    }
}

impl Default for PredictedLatencySection {
    fn default() -> Self {
        let usual = PredictedTuning::default();
        Self {
            goal: match usual.goal {
                Goal::FirstToken => GoalName::FirstToken,
                Goal::Total => GoalName::Total,
            },
            push: match usual.push {
                Push::Fit => PushName::Fit,
                Push::Always => PushName::Always,
                Push::NoPending => PushName::NoPending,
            },
            kappa: usual.kappa,
            crowding: usual.crowding,
            output_tokens: usual.output_tokens,
            session_ms: usual.session_ms,
            tie_ms: usual.tie_ms,
        }
    }
}

impl From<PredictedLatencySection> for PredictedTuning {
    fn from(section: PredictedLatencySection) -> Self {
        Self {
            goal: match section.goal {
                GoalName::FirstToken => Goal::FirstToken,
                GoalName::Total => Goal::Total,
            },
            push: match section.push {
                PushName::Fit => Push::Fit,
                PushName::Always => Push::Always,
                PushName::NoPending => Push::NoPending,
            },
            kappa: section.kappa,
            crowding: section.crowding,
            output_tokens: section.output_tokens,
            session_ms: section.session_ms,
            tie_ms: section.tie_ms,
            ..Self::default()
        }
    }
}

impl Default for PrefixAwareSection {
    fn default() -> Self {
        let PrefixAwareTuning { match_permille_min, imbalance_min, imbalance_ratio_min } =
            PrefixAwareTuning::default();
        Self { match_permille_min, imbalance_min, imbalance_ratio_min }
    }
}

impl From<PrefixAwareSection> for PrefixAwareTuning {
    fn from(section: PrefixAwareSection) -> Self {
        let PrefixAwareSection { match_permille_min, imbalance_min, imbalance_ratio_min } = section;
        Self { match_permille_min, imbalance_min, imbalance_ratio_min }
    }
}

impl Default for PrequalSection {
    fn default() -> Self {
        let PrequalTuning { probes, cold_permille } = PrequalTuning::default();
        Self { probes, cold_permille }
    }
}

impl From<PrequalSection> for PrequalTuning {
    fn from(section: PrequalSection) -> Self {
        let PrequalSection { probes, cold_permille } = section;
        Self { probes, cold_permille }
    }
}
