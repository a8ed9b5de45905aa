//! `[health]`, `[standby]`, and the sections of a replica about checks and metrics.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use spillway_health::HealthConfig;
use spillway_replicas::Expectation;
use spillway_route::BucketConfig;
use spillway_types::{Millis, settings};
use toml::Spanned;

settings! {
    /// `[health]`: checks of replicas, and the treatment of replicas that fail.
    #[derive(PartialEq)]
    pub(crate) struct HealthSection {
        /// Health check of replicas that set none.
        check: CheckChoice = CheckChoice::ByKind,
        /// Time between two checks of a replica, with a jitter of 20 %.
        #[schemars(range(min = 1))]
        interval_ms: Millis = Millis(1_000),
        /// Time limit of one check.
        #[schemars(range(min = 1))]
        timeout_ms: Millis = Millis(1_000),
        /// Consecutive failed checks that count against a replica; two successful ones end that.
        #[schemars(range(min = 1))]
        fall: u32 = HealthConfig::default().fall,
        /// Consecutive failed requests after which a replica is ejected temporarily.
        #[schemars(range(min = 1))]
        eject_after: u32 = HealthConfig::default().eject_after,
        /// Time for which a replica is ejected the first time, doubled each time it fails again, up to
        /// twelve times as long.
        #[schemars(range(min = 1))]
        eject_ms: u64 = HealthConfig::default().eject_ms,
        /// Ratio of a replica's response time to the typical one of its pool at which the replica is
        /// ejected as if it had failed; compared for one model, in proportion to weight, in pools of
        /// three or more. 0 turns this off. If hardware differs, set weights or turn it off.
        #[schemars(range(min = 0))]
        slow_ratio: f32 = HealthConfig::default().slow_ratio,
        /// Time without a single byte for any of its requests after which a replica counts as
        /// stalled. Keep it above the longest that a unary request takes on an otherwise idle
        /// replica.
        #[schemars(range(min = 1))]
        stall_ms: u64 = HealthConfig::default().stall_ms,
        /// Duration of slow start, in which a new or recovered replica ramps up to its full share; 0
        /// disables it.
        slow_start_ms: Millis = Millis(30_000),
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
    #[schemars(range(min = 1))]
    pub(crate) interval_ms: Option<Millis>,
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
    #[schemars(range(min = 0, max = 1))]
    pub(crate) gpu_memory_max: Option<f32>,
    /// Time between two checks; 30,000 by default.
    #[schemars(range(min = 1))]
    pub(crate) interval_ms: Option<Millis>,
}

/// `metrics` of a replica: source of its load.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct MetricsSection {
    /// True to read the load; by default true if the `kind` has metrics. The time between two
    /// readings is 20 times the duration of a reading, from 100 ms to 1 s.
    pub(crate) scrape: Option<bool>,
    /// Path of the metrics page, instead of the kind's.
    pub(crate) path: Option<String>,
    /// Port of the page, if it is neither the API's nor the kind's.
    pub(crate) port: Option<u16>,
    /// Name of a `[mapping]`, instead of the kind's own.
    #[schemars(with = "Option<String>")]
    pub(crate) mapping: Option<Spanned<String>>,
    /// Port of NVIDIA's DCGM exporter on the same host, for GPU use and memory.
    pub(crate) dcgm_port: Option<u16>,
}

settings! {
    /// `[standby]`: conditions for bringing in replicas in reserve.
    #[derive(PartialEq)]
    pub(crate) struct StandbySection {
        /// Number of waiting requests per active replica of a pool that activates a standby replica
        /// once it is exceeded for five seconds. Below half of it for a minute, the replica goes back. 0
        /// ignores the queue.
        #[schemars(range(min = 0))]
        queued: f32 = 4.0,
        /// 99th percentile of the time to first byte in a pool, in ms, that does the same; 0 ignores
        /// it.
        p99_ms: u64 = 0,
    }
}

settings! {
    /// `bucket` of a replica: settings of its bucket for the policy `token_bucket`.
    pub(crate) struct BucketSection {
        /// Requests per second that an idle replica takes, about as many as it can serve.
        #[schemars(range(min = 0))]
        rate_per_s: f32 = BucketConfig::default().rate_per_s,
        /// Number of requests that an idle replica can get in a burst.
        #[schemars(range(min = 0))]
        burst: f32 = BucketConfig::default().burst,
    }
}

impl From<&BucketSection> for BucketConfig {
    fn from(section: &BucketSection) -> Self {
        let BucketSection { rate_per_s, burst } = *section;
        Self { rate_per_s, burst, ..Self::default() }
    }
}
