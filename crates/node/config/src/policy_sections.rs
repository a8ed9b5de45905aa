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
    /// Requests waiting and running, relative to the mean of the group.
    pub(crate) queue: f32,
    /// Share of time the GPU is busy.
    pub(crate) gpu: f32,
    /// Share of the KV cache in use.
    pub(crate) kv: f32,
    /// Time to the first byte, relative to the mean of the group.
    pub(crate) latency: f32,
}

/// Settings of the policy `predicted_latency`.
#[derive(Clone, Copy, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct PredictedLatencySection {
    /// Time to minimise: to the first token, or to the end of the reply if clients don't read it as
    /// it is generated.
    pub(crate) goal: GoalName,
    /// Condition for sending a request to a replica: the request is predicted to fit into the KV
    /// cache, no request waits there, or none at all.
    pub(crate) push: PushName,
    /// Cost of a prefill to each request that runs at the replica, as a fraction of the prefill's
    /// duration.
    #[serde(deserialize_with = "weight")]
    pub(crate) kappa: f32,
    /// Fraction by which each running request slows the generation of the others.
    #[serde(deserialize_with = "weight")]
    pub(crate) crowding: f32,
    /// Expected number of tokens of a reply until replies have been observed, unless the client
    /// sets fewer.
    pub(crate) output_tokens: u32,
    /// Value in ms of staying on a session's replica, in addition to the value of known cached
    /// blocks.
    #[serde(deserialize_with = "weight")]
    pub(crate) session_ms: f32,
    /// Difference in predicted time, in ms, up to which the prompt decides, with the same result on
    /// every node.
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
    /// Minimum share of a prompt, in thousandths, that a cache must hold to decide.
    pub(crate) match_permille_min: u16,
    /// Minimum difference in requests between the busiest and the idlest replica for load to
    /// decide.
    #[serde(deserialize_with = "weight")]
    pub(crate) imbalance_min: f32,
    /// Minimum ratio of requests between the busiest and the idlest replica for load to decide;
    /// both conditions must hold.
    #[serde(deserialize_with = "weight")]
    pub(crate) imbalance_ratio_min: f32,
}

/// Settings of the policy `prequal`.
#[derive(Clone, Copy, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct PrequalSection {
    /// Number of replicas sampled for each request, 1 to 64.
    #[serde(deserialize_with = "probes")]
    #[schemars(range(min = 1, max = 64))]
    pub(crate) probes: u8,
    /// Share of the sampled replicas, in thousandths, above which a replica is hot: more than this
    /// share have fewer requests in flight.
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
