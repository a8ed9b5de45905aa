//! Replicas: metrics.

use super::spec::catalog;

catalog! {
    "Replicas";

    /// Requests this node has there now.
    IN_FLIGHT = Gauge "spillway_replica_in_flight" [replica];

    /// Requests that the region's nodes together give it at a time, where that is found out:
    /// replicas without `connections_max`.
    REPLICA_CONCURRENCY_LIMIT = Gauge "spillway_replica_concurrency_limit" [replica];

    /// Connections this node holds there, idle ones included.
    REPLICA_CONNECTIONS = Gauge "spillway_replica_connections" [replica];

    /// 1 for its present standing: `open`, `standby`, `ejected`, `starting`, `down`, `busy`,
    /// `draining`.
    REPLICA_ADMISSION = Gauge "spillway_replica_admission" [replica, admission]
        shown by "count by (admission) (spillway_replica_admission == 1)";

    /// Share of its weight that counts, below 1 while it warms up or is on trial.
    REPLICA_RAMP = Gauge "spillway_replica_ramp" [replica];

    /// Models whose breaker is open or half open.
    REPLICA_BREAKERS = Gauge "spillway_replica_breakers_open" [replica];

    /// Asking the replica to its first byte: an average that follows peaks at once.
    REPLICA_LATENCY = Gauge "spillway_replica_latency_seconds" [replica];

    /// 99th percentile of the same over the last seconds.
    REPLICA_P99 = Gauge "spillway_replica_p99_seconds" [replica];

    /// What the replica says of itself: `queued`, `running`, `kv_use`, `gpu_use`, `pending`.
    REPLICA_LOAD = Gauge "spillway_replica_load" [replica, signal];

    /// How far that is trusted: 1 fresh, falling with age. What is unknown has no series.
    REPLICA_TRUST = Gauge "spillway_replica_load_trust" [replica, signal];

    /// Changes of standing.
    REPLICA_TRANSITIONS = Counter "spillway_replica_transitions" [replica, to, why];

    /// Requests it failed: `connect`, `reset`, `bad_reply`, `silent`, `server_error`, `engine_gone`, `cut`,
    /// `stalled`.
    REPLICA_FAULTS = Counter "spillway_replica_faults" [replica, fault];

    /// Finished requests by the replica that was asked last, why its policy chose it and class of
    /// status. `reason`: `only`, `drawn`, `turn`, `lighter_of_two`, `lightest`, `soonest`,
    /// `cached`, `preferred` (by the key of a hash), `session`, `warming_up`, `substitute` (those
    /// looked at first were busy or tried).
    REPLICA_REQUESTS = Counter "spillway_replica_requests" [replica, reason, status];

    /// Checks of replicas by how they ended: `active`, `deep` and `scrape`.
    REPLICA_CHECKS = Counter "spillway_replica_checks" [replica, check, result];

    /// 1 where no replica is open, with the standing of those that serve instead.
    LAST_RESORT = Gauge "spillway_last_resort" [route, model, admission]
        shown by "max by (route, model, admission) (spillway_last_resort) == 1";

    /// Results of checks that found their queue full.
    FACTS_DROPPED = Counter "spillway_facts_dropped" [];
}
