//! `[health]`, `[standby]` and what a replica says about being checked.

use schemars::JsonSchema;
use serde::Deserialize;
use spillway_replicas::Expectation;
use spillway_route::BucketConfig;
use toml::Spanned;

use crate::config::section::{positive, positive_if_set};

/// `[health]`: how the node finds out whether replicas work, and what it does with those that
/// don't.
#[derive(Clone, Debug, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct HealthSection {
    /// How replicas are checked that don't say it themselves.
    pub(crate) check: CheckChoice,
    /// Time between two checks of a replica, give or take a fifth.
    #[serde(deserialize_with = "positive")]
    pub(crate) interval_ms: u64,
    /// Time for one check.
    #[serde(deserialize_with = "positive")]
    pub(crate) timeout_ms: u64,
    /// Good checks in a row that bring a replica back.
    #[serde(deserialize_with = "positive")]
    pub(crate) rise: u32,
    /// Bad checks in a row that speak against a replica.
    #[serde(deserialize_with = "positive")]
    pub(crate) fall: u32,
    /// Failed requests in a row after which a replica is left out for a while.
    #[serde(deserialize_with = "positive")]
    pub(crate) eject_after: u32,
    /// How long it is left out the first time; doubled each time it fails again.
    #[serde(deserialize_with = "positive")]
    pub(crate) eject_ms: u64,
    /// How long it is left out at most.
    #[serde(deserialize_with = "positive")]
    pub(crate) eject_max_ms: u64,
    /// Share of a pool's replicas that may be left out for failed requests.
    pub(crate) ejected_percent_max: u32,
    /// A replica whose answers take so many times as long as is usual among three or more of its
    /// pool, for the same model and in proportion to weight, is left out as if it failed. 0 turns
    /// it off: where hardware differs, set weights or turn it off.
    pub(crate) slow_ratio: f32,
    /// Failed requests of one model at one replica, in percent, that open its breaker.
    #[serde(deserialize_with = "positive")]
    pub(crate) breaker_percent: u32,
    /// The time that `breaker_percent` looks back on.
    #[serde(deserialize_with = "positive")]
    pub(crate) breaker_window_ms: u64,
    /// Requests within that time below which a breaker stays closed.
    #[serde(deserialize_with = "positive")]
    pub(crate) breaker_requests_min: u32,
    /// How long a breaker stays open before the model is tried again; doubled each time.
    #[serde(deserialize_with = "positive")]
    pub(crate) breaker_open_ms: u64,
    /// A replica that answers none of its requests with a single byte for this long has stalled.
    /// Keep it above the longest that a unary request takes on an otherwise idle replica.
    #[serde(deserialize_with = "positive")]
    pub(crate) stall_ms: u64,
    /// Time in which a new or recovered replica comes to its full share; 0 gives it at once.
    pub(crate) slow_start_ms: u64,
    /// A replica that asks to be left alone (`Retry-After`) is, for this long at most.
    #[serde(deserialize_with = "positive")]
    pub(crate) retry_after_max_ms: u64,
    /// Once a load report is overdue, the time in which it loses half of its weight.
    #[serde(deserialize_with = "positive")]
    pub(crate) stale_half_life_ms: u64,
    /// Time between two deep checks of replicas that have one.
    #[serde(deserialize_with = "positive")]
    pub(crate) deep_interval_ms: u64,
    /// Time for one deep check.
    #[serde(deserialize_with = "positive")]
    pub(crate) deep_timeout_ms: u64,
    /// Time for all warm-up prompts of a replica; it takes requests afterwards in any case.
    #[serde(deserialize_with = "positive")]
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

/// How a replica is checked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum CheckChoice {
    /// As its `kind` offers; a connection, where that is unknown.
    #[default]
    ByKind,
    /// A request for `path`, which must be answered with 2xx.
    Http,
    /// A connection.
    Tcp,
    /// The gRPC health protocol.
    Grpc,
    /// Not at all: only requests show whether it works.
    Off,
}

/// `health` of a replica: what differs from `[health]` for it.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct ReplicaHealthSection {
    /// How it is checked.
    pub(crate) check: Option<CheckChoice>,
    /// The path to ask for, instead of its kind's.
    pub(crate) path: Option<String>,
    /// The port to ask, where it is not the API's.
    pub(crate) port: Option<u16>,
    /// The service to ask about in the gRPC health protocol; empty asks about the server.
    pub(crate) service: Option<String>,
    /// Time between two checks.
    #[serde(deserialize_with = "positive_if_set")]
    pub(crate) interval_ms: Option<u64>,
    /// Time for one check.
    #[serde(deserialize_with = "positive_if_set")]
    pub(crate) timeout_ms: Option<u64>,
}

/// `deep` of a replica: a check that makes it work.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct DeepSection {
    /// Where to send `body`; without one, a single token is generated by its kind's own API.
    #[schemars(with = "Option<String>")]
    pub(crate) path: Option<Spanned<String>>,
    /// JSON to send there.
    #[schemars(with = "Option<String>")]
    pub(crate) body: Option<Spanned<String>>,
    /// What the reply must say, to find replicas that answer but wrongly.
    pub(crate) expect: Option<Expectation>,
    /// Share of the GPU's memory in use above which the replica is full, 0 to 1.
    #[schemars(with = "Option<f32>")]
    pub(crate) gpu_memory_max: Option<Spanned<f32>>,
    /// Time between two checks.
    #[serde(deserialize_with = "positive_if_set")]
    pub(crate) interval_ms: Option<u64>,
    /// Time for one check.
    #[serde(deserialize_with = "positive_if_set")]
    pub(crate) timeout_ms: Option<u64>,
}

/// `metrics` of a replica: where its load is read.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct MetricsSection {
    /// Whether load is read; by default where the `kind` has metrics.
    pub(crate) scrape: Option<bool>,
    /// Path of the page, instead of the kind's.
    pub(crate) path: Option<String>,
    /// Port of the page, where it is not the API's or the kind's.
    pub(crate) port: Option<u16>,
    /// Name of a `[mapping]`, instead of the kind's own.
    #[schemars(with = "Option<String>")]
    pub(crate) mapping: Option<Spanned<String>>,
    /// Time between two readings. By default 20 times what one takes, within 100 ms to 1 s.
    #[serde(deserialize_with = "positive_if_set")]
    pub(crate) period_ms: Option<u64>,
    /// Port of NVIDIA's DCGM exporter on the same host, for GPU use and memory.
    pub(crate) dcgm_port: Option<u16>,
}

/// `[standby]`: when replicas in reserve are brought in.
#[derive(Clone, Debug, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct StandbySection {
    /// Requests waiting per open replica of a pool; 0 leaves the queue out.
    pub(crate) queued: f32,
    /// 99th percentile of the time to first byte in a pool; 0 leaves it out.
    pub(crate) p99_ms: u64,
    /// How long either has to last.
    #[serde(deserialize_with = "positive")]
    pub(crate) promote_after_ms: u64,
    /// How long both have to be below half before a replica goes back into reserve.
    #[serde(deserialize_with = "positive")]
    pub(crate) demote_after_ms: u64,
}

impl Default for StandbySection {
    fn default() -> Self {
        Self { queued: 4.0, p99_ms: 0, promote_after_ms: 5000, demote_after_ms: 60_000 }
    }
}

/// `bucket` of a replica: how the bucket fills that the policy `token_bucket` goes by.
#[derive(Clone, Copy, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct BucketSection {
    /// Requests per second that an idle replica takes: about what it can serve.
    pub(crate) rate_per_s: f32,
    /// Requests that a replica which was idle may get ahead of the others.
    pub(crate) burst: f32,
    /// The rate halves with every so many requests waiting or running there.
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
