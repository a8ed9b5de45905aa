//! Settings of a fleet and of the health of its members.

/// Limits of a fleet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FleetConfig {
    /// Actions kept until they are polled. A caller that polls after each input never needs more
    /// than a few for each member; beyond this limit the oldest are dropped, changes first.
    pub actions_max: usize,
    /// Models per replica that have a circuit breaker. Choose more than a replica has models;
    /// beyond this limit the breaker that was quiet for longest is dropped.
    pub models_max: usize,
}

impl Default for FleetConfig {
    fn default() -> Self {
        Self { actions_max: 4096, models_max: 64 }
    }
}

/// Rules for the health of the replicas of a pool.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct HealthConfig {
    /// Good checks in a row until a replica counts as well. A value above 1 keeps out a replica
    /// that answers only now and then.
    pub rise: u32,
    /// Failed checks in a row until a check speaks against a replica. This number times the check's
    /// period is the time in which the death of an idle replica is noticed.
    pub fall: u32,
    /// Faults in a row, without a good answer between them, until a replica is ejected.
    pub eject_after: u32,
    /// Failed connection attempts in a row until a replica is ejected. They are rarely chance, so
    /// choose fewer than for other faults. Two within 200 ms are enough if the newest active check
    /// has failed too.
    pub connect_eject_after: u32,
    /// Time of a first ejection; each repeat doubles it. Choose about the time that a process needs
    /// to restart.
    pub eject_ms: u64,
    /// Longest time of an ejection.
    pub eject_max_ms: u64,
    /// Time without trouble after which the next ejection counts as a first one. Choose more than
    /// `eject_max_ms`, or a flapping replica never gets there.
    pub eject_forget_ms: u64,
    /// Largest share of a pool's open replicas that traffic may eject, so that a fault outside the
    /// replicas can't take them all.
    pub ejected_share_percent: u32,
    /// Share of its weight, in permille, that a replica gets on trial after an ejection.
    pub trial_permille: u16,
    /// Good answers that end a trial.
    pub trial_goods: u32,
    /// Time without a byte, with requests in flight, after which a replica counts as stalled.
    /// Choose more than the longest prefill of a full queue takes.
    pub stall_ms: u64,
    /// Slowness that ejects a replica, as a multiple of the usual time of at least three replicas
    /// of its pool, for the same model and in proportion to weight. 0 turns it off: choose that
    /// where hardware differs and weights don't say so.
    pub slow_ratio: f32,
    /// Share of the GPU's memory, 0 to 1, above which a report counts as a failed deep check.
    /// Servers that reserve memory for their KV cache report more than 0.9 all the time: choose
    /// `None` for them.
    pub gpu_memory_use_max: Option<f32>,
    /// Circuit breakers, one for each replica and model.
    pub breaker: CircuitBreakerConfig,
    /// Longest pause after a `Retry-After` of a replica; longer ones are cut to it.
    pub retry_after_max_ms: u64,
    /// Pause of a replica that answers most requests with "busy" and names no time.
    pub busy_pause_ms: u64,
    /// Time in which the trust in load halves, once the load is older than two reports.
    pub stale_half_life_ms: u64,
    /// Time limit of a warm-up; one that takes longer counts as failed.
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
            breaker: CircuitBreakerConfig::default(),
            retry_after_max_ms: 30_000,
            busy_pause_ms: 1_000,
            stale_half_life_ms: 2_000,
            warm_up_max_ms: 60_000,
        }
    }
}

/// Rules of the circuit breaker that leaves a model of a replica out when too many requests fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CircuitBreakerConfig {
    /// Share of failed requests, in percent, that opens the breaker.
    pub error_percent: u32,
    /// Length of the window in which requests are counted.
    pub window_ms: u64,
    /// Requests within the window below which the breaker never opens.
    pub requests_min: u32,
    /// Time that the breaker stays open at first; each repeat doubles it.
    pub open_ms: u64,
    /// Longest time that the breaker stays open.
    pub open_max_ms: u64,
    /// Good answers that close the breaker again.
    pub trial_goods: u32,
}

impl Default for CircuitBreakerConfig {
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

/// Conditions under which a replica that is kept in reserve takes part.
///
/// It also takes part while fewer replicas of the pool are open than the pool has without its
/// reserve.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct StandbyConfig {
    /// Threshold of requests that wait at an open replica of the pool on average; `None` to ignore
    /// queues.
    pub queue: Option<f32>,
    /// Threshold of the 99th percentile of the pool's time to first byte; `None` to ignore it.
    pub p99_ms: Option<f32>,
    /// Time that the pool must be in need before a replica is promoted. Choose it long enough to
    /// ride out one burst.
    pub promote_after_ms: u64,
    /// Time that the pool must be below half of both thresholds before a replica goes back.
    pub demote_after_ms: u64,
    /// Time for a replica to finish its requests when it goes back.
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
