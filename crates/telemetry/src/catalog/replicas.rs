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

    /// Times that it sent bytes on a kept connection which no request had asked for. They could be
    /// taken for the reply to the next request, so its idle connections are closed then.
    REPLICA_UNASKED = Counter "spillway_replica_unasked_replies" [replica]
        shown by "increase(spillway_replica_unasked_replies_total[1h]) > 0";

    /// 1 for its present standing: `open`, `standby`, `ejected`, `starting`, `down`, `busy`,
    /// `draining`.
    REPLICA_ADMISSION = Gauge "spillway_replica_admission" [replica, admission]
        shown by "count by (admission) (spillway_replica_admission == 1)";

    /// Share of its weight that counts, below 1 while it warms up or is on trial.
    REPLICA_RAMP = Gauge "spillway_replica_ramp" [replica];

    /// Models whose breaker is open or half open.
    REPLICA_BREAKERS = Gauge "spillway_replica_breakers_open" [replica];

    /// Models that it should serve and says it does not have, by its own page or in reply to
    /// requests.
    REPLICA_MODELS_MISSING = Gauge "spillway_replica_models_missing" [replica];

    /// Asking the replica to its first byte: an average that follows peaks at once.
    REPLICA_LATENCY = Gauge "spillway_replica_latency_seconds" [replica];

    /// 99th percentile of the same over the last seconds.
    REPLICA_P99 = Gauge "spillway_replica_p99_seconds" [replica];

    /// What the replica says of itself: `queued`, `running`, `kv_use`, `gpu_use`, `gpu_memory_use`,
    /// `pending`.
    REPLICA_LOAD = Gauge "spillway_replica_load" [replica, signal];

    /// How far that is trusted: 1 fresh, falling with age. What is unknown has no series.
    REPLICA_TRUST = Gauge "spillway_replica_load_trust" [replica, signal];

    /// Changes of standing.
    REPLICA_TRANSITIONS = Counter "spillway_replica_transitions" [replica, to, why];

    /// Requests it failed: `connect`, `connect_timeout`, `reset`, `bad_reply`, `silent`, `server_error`, `engine_gone`, `cut`,
    /// `stalled`.
    REPLICA_FAULTS = Counter "spillway_replica_faults" [replica, fault];

    /// Finished requests by the replica that was asked last, why its policy chose it and class of
    /// status. `reason`: `only`, `drawn`, `turn`, `lighter_of_two`, `lightest`, `soonest`,
    /// `cached`, `adapter` (has it in memory), `preferred` (by the key of a hash), `session`,
    /// `warming_up`, `substitute` (those looked at first were busy or tried), `overflow` (no other
    /// replica could serve).
    REPLICA_REQUESTS = Counter "spillway_replica_requests" [replica, reason, status];

    /// Checks of replicas by how they ended: `active`, `deep` and `scrape`.
    REPLICA_CHECKS = Counter "spillway_replica_checks" [replica, check, result];

    /// 1 where no replica is open, with the standing of those that serve instead.
    LAST_RESORT = Gauge "spillway_last_resort" [route, model, admission]
        shown by "max by (route, model, admission) (spillway_last_resort) == 1";

    /// Requests for which an overflow replica was asked. `reason`: why no other replica could serve in
    /// time, as in `spillway_sheds` (`queue_full`, `waited`, …), or `waiting`, `no_replica`,
    /// `all_busy`, `all_resting`, `all_tried`, `failed`, `refused`. `result`: `served`, `failed`.
    OVERFLOW_REQUESTS = Counter "spillway_overflow_requests" [replica, reason, result];

    /// Tokens of requests that an overflow replica served: `prompt`, `completion`, `cached`.
    OVERFLOW_TOKENS = Counter "spillway_overflow_tokens" [replica, kind];

    /// Money that an overflow replica cost the operator, by its `price`.
    OVERFLOW_COST = Counter "spillway_overflow_cost" [replica]
        shown by "sum by (replica) (increase(spillway_overflow_cost_total[1d]))";

    /// Requests that a cap kept from an overflow replica: `share`, `day`, `month`.
    OVERFLOW_CAPPED = Counter "spillway_overflow_capped" [replica, cap];

    /// Share of an overflow replica's budget that all nodes have spent: 1 is all. `period`: `day`,
    /// `month`.
    OVERFLOW_BUDGET_USED = Gauge "spillway_overflow_budget_used" [replica, period];

    /// 1 for the present state of each `[[discovery]]`: `pending` (no answer yet), `answered`, `empty`,
    /// `stale` (it fails, and what it found earlier is in use) or `unanswered` (it was never answered).
    DISCOVERY_STATE = Gauge "spillway_discovery_state" [discovery, state]
        shown by "max by (discovery, state) (spillway_discovery_state) == 1";

    /// Replicas of it in use.
    DISCOVERY_REPLICAS = Gauge "spillway_discovery_replicas" [discovery];

    /// Age of its last answer that could be used. Without any answer there is no series.
    DISCOVERY_ANSWER_AGE = Gauge "spillway_discovery_answer_age_seconds" [discovery];

    /// Results of checks that found their queue full.
    FACTS_DROPPED = Counter "spillway_facts_dropped" [];
}
