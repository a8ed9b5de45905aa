//! `[health]`, `[standby]`, and the sections of a replica about checks and metrics.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use spillway_replicas::Expectation;
use spillway_route::BucketConfig;
use toml::Spanned;

use crate::section::{positive, positive_if_set};

/// `[health]`: checks of replicas, and the treatment of replicas that fail.
#[derive(Clone, Debug, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct HealthSection {
    /// Health check of replicas that set none.
    pub(crate) check: CheckChoice,
    /// Time between two checks of a replica, with a jitter of 20 %.
    #[serde(deserialize_with = "positive")]
    #[schemars(range(min = 1))]
    pub(crate) interval_ms: u64,
    /// Time limit of one check.
    #[serde(deserialize_with = "positive")]
    #[schemars(range(min = 1))]
    pub(crate) timeout_ms: u64,
    /// Consecutive successful checks after which a replica counts as up again.
    #[serde(deserialize_with = "positive")]
    #[schemars(range(min = 1))]
    pub(crate) rise: u32,
    /// Consecutive failed checks that count against a replica.
    #[serde(deserialize_with = "positive")]
    #[schemars(range(min = 1))]
    pub(crate) fall: u32,
    /// Consecutive failed requests after which a replica is ejected temporarily.
    #[serde(deserialize_with = "positive")]
    #[schemars(range(min = 1))]
    pub(crate) eject_after: u32,
    /// Time for which a replica is ejected the first time, doubled each time it fails again.
    #[serde(deserialize_with = "positive")]
    #[schemars(range(min = 1))]
    pub(crate) eject_ms: u64,
    /// Longest time for which a replica is ejected.
    #[serde(deserialize_with = "positive")]
    #[schemars(range(min = 1))]
    pub(crate) eject_max_ms: u64,
    /// Maximum share of a pool's replicas that may be ejected for failed requests, in percent.
    pub(crate) ejected_percent_max: u32,
    /// Ratio of a replica's response time to the typical one of its pool at which the replica is
    /// ejected as if it had failed; compared for one model, in proportion to weight, in pools of
    /// three or more. 0 turns this off. If hardware differs, set weights or turn it off.
    pub(crate) slow_ratio: f32,
    /// Failed requests of one model at one replica, in percent, that open its breaker.
    #[serde(deserialize_with = "positive")]
    #[schemars(range(min = 1))]
    pub(crate) breaker_percent: u32,
    /// Time window of `breaker_percent`.
    #[serde(deserialize_with = "positive")]
    #[schemars(range(min = 1))]
    pub(crate) breaker_window_ms: u64,
    /// Number of requests in the window that a breaker needs before it can open.
    #[serde(deserialize_with = "positive")]
    #[schemars(range(min = 1))]
    pub(crate) breaker_requests_min: u32,
    /// Time for which a breaker stays open before the model is tried again, doubled each time.
    #[serde(deserialize_with = "positive")]
    #[schemars(range(min = 1))]
    pub(crate) breaker_open_ms: u64,
    /// Time without a single byte for any of its requests after which a replica counts as stalled.
    /// Keep it above the longest that a unary request takes on an otherwise idle replica.
    #[serde(deserialize_with = "positive")]
    #[schemars(range(min = 1))]
    pub(crate) stall_ms: u64,
    /// Duration of slow start, in which a new or recovered replica ramps up to its full share; 0
    /// disables it.
    pub(crate) slow_start_ms: u64,
    /// Longest pause that a replica can ask for with `Retry-After`.
    #[serde(deserialize_with = "positive")]
    #[schemars(range(min = 1))]
    pub(crate) retry_after_max_ms: u64,
    /// Half-life of the weight of an overdue load report.
    #[serde(deserialize_with = "positive")]
    #[schemars(range(min = 1))]
    pub(crate) stale_half_life_ms: u64,
    /// Time between two deep checks of a replica.
    #[serde(deserialize_with = "positive")]
    #[schemars(range(min = 1))]
    pub(crate) deep_interval_ms: u64,
    /// Time limit of one deep check.
    #[serde(deserialize_with = "positive")]
    #[schemars(range(min = 1))]
    pub(crate) deep_timeout_ms: u64,
    /// Time limit of all warm-up prompts of a replica, after which it takes requests in any case.
    #[serde(deserialize_with = "positive")]
    #[schemars(range(min = 1))]
    pub(crate) warm_up_max_ms: u64,
}

impl Default for HealthSection {
    fn default() -> Self {
        Self {
            check: CheckChoice::ByKind,
            interval_ms: 1000,
            timeout_ms: 1000,
            rise: 2,
            fall: 3,
            eject_after: 5,
            eject_ms: 5000,
            eject_max_ms: 60_000,
            ejected_percent_max: 50,
            slow_ratio: 5.0,
            breaker_percent: 50,
            breaker_window_ms: 10_000,
            breaker_requests_min: 20,
            breaker_open_ms: 5000,
            stall_ms: 30_000,
            slow_start_ms: 30_000,
            retry_after_max_ms: 30_000,
            stale_half_life_ms: 2000,
            deep_interval_ms: 30_000,
            deep_timeout_ms: 10_000,
            warm_up_max_ms: 60_000,
        }
    }
}

/// Method of checking a replica.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum CheckChoice {
    /// The check of its `kind`; a connection, where the kind is unknown.
    #[default]
    ByKind,
    /// A request for `path`, which must be answered with 2xx.
    Http,
    /// A TCP connection.
    Tcp,
    /// The gRPC health protocol.
    Grpc,
    /// No check: only requests show whether the replica works.
    Off,
}

/// `health` of a replica: settings that differ from `[health]` for it.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct ReplicaHealthSection {
    /// Method of checking the replica.
    pub(crate) check: Option<CheckChoice>,
    /// Path to request, instead of its kind's.
    pub(crate) path: Option<String>,
    /// Port of the check, if it is not the API's.
    pub(crate) port: Option<u16>,
    /// Service to query in the gRPC health protocol; an empty name means the whole server.
    pub(crate) service: Option<String>,
    /// Time between two checks.
    #[serde(deserialize_with = "positive_if_set")]
    #[schemars(range(min = 1))]
    pub(crate) interval_ms: Option<u64>,
    /// Time limit of one check.
    #[serde(deserialize_with = "positive_if_set")]
    #[schemars(range(min = 1))]
    pub(crate) timeout_ms: Option<u64>,
}

/// `deep` of a replica: a check that runs an inference.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct DeepSection {
    /// Path to send `body` to; by default the check generates a single token with the API of the
    /// replica's kind.
    #[schemars(with = "Option<String>")]
    pub(crate) path: Option<Spanned<String>>,
    /// JSON to send to `path`.
    #[schemars(with = "Option<String>")]
    pub(crate) body: Option<Spanned<String>>,
    /// Expected content of the reply, to detect replicas with wrong answers.
    pub(crate) expect: Option<Expectation>,
    /// Share of the GPU's memory in use above which the replica counts as full, 0 to 1.
    #[schemars(with = "Option<f32>")]
    pub(crate) gpu_memory_max: Option<Spanned<f32>>,
    /// Time between two checks.
    #[serde(deserialize_with = "positive_if_set")]
    #[schemars(range(min = 1))]
    pub(crate) interval_ms: Option<u64>,
    /// Time limit of one check.
    #[serde(deserialize_with = "positive_if_set")]
    #[schemars(range(min = 1))]
    pub(crate) timeout_ms: Option<u64>,
}

/// `metrics` of a replica: source of its load.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct MetricsSection {
    /// True to read the load; by default true if the `kind` has metrics.
    pub(crate) scrape: Option<bool>,
    /// Path of the metrics page, instead of the kind's.
    pub(crate) path: Option<String>,
    /// Port of the page, if it is neither the API's nor the kind's.
    pub(crate) port: Option<u16>,
    /// Name of a `[mapping]`, instead of the kind's own.
    #[schemars(with = "Option<String>")]
    pub(crate) mapping: Option<Spanned<String>>,
    /// Time between two readings. By default 20 times the duration of a reading, from 100 ms to 1
    /// s.
    #[serde(deserialize_with = "positive_if_set")]
    #[schemars(range(min = 1))]
    pub(crate) period_ms: Option<u64>,
    /// Port of NVIDIA's DCGM exporter on the same host, for GPU use and memory.
    pub(crate) dcgm_port: Option<u16>,
}

/// `[standby]`: conditions for bringing in replicas in reserve.
#[derive(Clone, Debug, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct StandbySection {
    /// Number of waiting requests per active replica of a pool; 0 ignores the queue.
    pub(crate) queued: f32,
    /// 99th percentile of the time to first byte in a pool, in ms; 0 ignores it.
    pub(crate) p99_ms: u64,
    /// Time for which either value has to be exceeded before a replica is activated.
    #[serde(deserialize_with = "positive")]
    #[schemars(range(min = 1))]
    pub(crate) promote_after_ms: u64,
    /// Time for which both values have to be below half before a replica goes back to standby.
    #[serde(deserialize_with = "positive")]
    #[schemars(range(min = 1))]
    pub(crate) demote_after_ms: u64,
}

impl Default for StandbySection {
    fn default() -> Self {
        Self { queued: 4.0, p99_ms: 0, promote_after_ms: 5000, demote_after_ms: 60_000 }
    }
}

/// `bucket` of a replica: settings of its bucket for the policy `token_bucket`.
#[derive(Clone, Copy, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct BucketSection {
    /// Requests per second that an idle replica takes, about as many as it can serve.
    pub(crate) rate_per_s: f32,
    /// Number of requests that an idle replica can get in a burst.
    pub(crate) burst: f32,
    /// Number of requests waiting or running at the replica that halves the rate; twice as many
    /// halve it again.
    pub(crate) queue_halving: f32,
}

impl Default for BucketSection {
    fn default() -> Self {
        let BucketConfig { rate_per_s, burst, queue_halving } = BucketConfig::default();
        Self { rate_per_s, burst, queue_halving }
    }
}

impl From<BucketSection> for BucketConfig {
    fn from(section: BucketSection) -> Self {
        let BucketSection { rate_per_s, burst, queue_halving } = section;
        Self { rate_per_s, burst, queue_halving }
    }
}
