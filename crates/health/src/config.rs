//! Settings of a fleet and of how its members' health is judged.

/// Limits of a fleet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FleetConfig {
    /// Actions kept until they are polled. A caller that polls after each input never needs more
    /// than a few for each member; beyond this the oldest are lost, changes first.
    pub actions_max: usize,
    /// Models per replica for which a breaker is kept. Choose more than a replica has models;
    /// beyond this the one that was quiet for longest is forgotten.
    pub models_max: usize,
}

impl Default for FleetConfig {
    fn default() -> Self {
        Self { actions_max: 4096, models_max: 64 }
    }
}

/// How the health of the replicas of a pool is judged.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct HealthConfig {
    /// Good checks in a row until a replica counts as well. More than 1 keeps one that only
    /// answers now and then out.
    pub rise: u32,
    /// Failed checks in a row until a check speaks against a replica. Times the period this is
    /// how long an idle replica's death goes unnoticed.
    pub fall: u32,
    /// Faults in a row, without a good answer between them, until a replica is ejected.
    pub eject_after: u32,
    /// Connections in a row that could not be made until a replica is ejected. They are rarely
    /// chance, so fewer than other faults. Two within 200 ms are enough while the newest active
    /// check has failed too.
    pub connect_eject_after: u32,
    /// How long a first ejection lasts; each repeat lasts twice as long. About the time that a
    /// process needs to restart.
    pub eject_ms: u64,
    /// No ejection lasts longer.
    pub eject_max_ms: u64,
    /// After this time without trouble the next ejection counts as a first one. More than
    /// `eject_max_ms`, or a flapping replica never gets there.
    pub eject_forget_ms: u64,
    /// At most this share of a pool's open replicas is ejected by what traffic shows, so that
    /// what is no replica's fault can't take them all.
    pub ejected_share_percent: u32,
    /// Share of its weight, in permille, that a replica gets on trial after an ejection.
    pub trial_permille: u16,
    /// Good answers that end a trial.
    pub trial_goods: u32,
    /// A replica with requests in flight that sends no byte for this long has stalled. More than
    /// the longest prefill of a full queue takes.
    pub stall_ms: u64,
    /// A replica whose answers take so many times as long as is usual among at least three of its
    /// pool, for the same model and in proportion to weight, is ejected as one that fails. 0 turns
    /// it off: choose that where hardware differs and weights don't say so.
    pub slow_ratio: f32,
    /// Share of the GPU's memory, 0 to 1, above which reports count as failed deep checks. Servers
    /// that reserve memory for their KV cache report more than 0.9 all the time: leave it out.
    pub gpu_memory_use_max: Option<f32>,
    /// Breakers, one for each replica and model.
    pub breaker: BreakerConfig,
    /// No replica is left alone for longer, whatever `Retry-After` it sends.
    pub retry_after_max_ms: u64,
    /// How long a replica is left alone that answers most requests with "busy" and names no time.
    pub busy_pause_ms: u64,
    /// Load that is older than two reports takes this long to lose half of its trust.
    pub stale_half_life_ms: u64,
    /// A warm-up that takes longer counts as failed.
    pub warm_up_max_ms: u64,
}

impl Default for HealthConfig {
    fn default() -> Self {
        Self {
            rise: 2,
            fall: 3,
            eject_after: 5,
            connect_eject_after: 3,
            eject_ms: 5_000,
            eject_max_ms: 60_000,
            eject_forget_ms: 120_000,
            ejected_share_percent: 50,
            trial_permille: 50,
            trial_goods: 3,
            stall_ms: 30_000,
            slow_ratio: 5.0,
            gpu_memory_use_max: None,
            breaker: BreakerConfig::default(),
            retry_after_max_ms: 30_000,
            busy_pause_ms: 1_000,
            stale_half_life_ms: 2_000,
            warm_up_max_ms: 60_000,
        }
    }
}

/// When a model of a replica is left out, because too many of its requests fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BreakerConfig {
    /// Share of failed requests that opens it.
    pub error_percent: u32,
    /// The time over which requests are counted.
    pub window_ms: u64,
    /// Fewer requests within that time never open it.
    pub requests_min: u32,
    /// How long it is open at first; twice as long on each repeat.
    pub open_ms: u64,
    /// It is never open for longer.
    pub open_max_ms: u64,
    /// Good answers that close it again.
    pub trial_goods: u32,
}

impl Default for BreakerConfig {
    fn default() -> Self {
        Self {
            error_percent: 50,
            window_ms: 10_000,
            requests_min: 20,
            open_ms: 5_000,
            open_max_ms: 60_000,
            trial_goods: 5,
        }
    }
}

/// When a replica that is kept in reserve takes part.
///
/// It also does while fewer of the pool's replicas are open than the pool has without its reserve.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct StandbyConfig {
    /// Requests that wait at an open replica of the pool on average; `None` to ignore queues.
    pub queue: Option<f32>,
    /// 99th percentile of the pool's time to first byte; `None` to ignore it.
    pub p99_ms: Option<f32>,
    /// How long the pool must be in need. Long enough to ride out one burst.
    pub promote_after_ms: u64,
    /// How long the pool must have been below half of both thresholds until one goes back.
    pub demote_after_ms: u64,
    /// Time to finish what it has when it goes back.
    pub drain_ms: u64,
}

impl Default for StandbyConfig {
    fn default() -> Self {
        Self {
            queue: Some(8.0),
            p99_ms: None,
            promote_after_ms: 5_000,
            demote_after_ms: 60_000,
            drain_ms: 60_000,
        }
    }
}
