//! Replicas: metrics.

use spillway_route::Reason;

use super::spec::catalog;

catalog! {
    "Replicas";

    /// Requests that this node has in flight at the replica.
    IN_FLIGHT = Gauge "spillway_replica_in_flight" [replica];

    /// Adaptive limit on concurrent requests from all nodes of the region, for replicas without
    /// `connections_max`.
    REPLICA_CONCURRENCY_LIMIT = Gauge "spillway_replica_concurrency_limit" [replica];

    /// Connections of this node to the replica, including idle ones.
    REPLICA_CONNECTIONS = Gauge "spillway_replica_connections" [replica];

    /// Times that the replica sent bytes on an idle connection without a request. They could be
    /// mistaken for the reply to the next request, so its idle connections are closed.
    REPLICA_UNASKED = Counter "spillway_replica_unasked_replies" [replica]
        shown by "increase(spillway_replica_unasked_replies_total[1h]) > 0";

    /// 1 for the replica's current state: `open`, `standby`, `ejected`, `starting`, `down`, `busy`,
    /// `draining`.
    REPLICA_ADMISSION = Gauge "spillway_replica_admission" [replica, admission]
        shown by "count by (admission) (spillway_replica_admission == 1)";

    /// Share of the replica's weight that counts, below 1 while it warms up or is on trial.
    REPLICA_RAMP = Gauge "spillway_replica_ramp" [replica];

    /// Models whose circuit breaker is open or half open.
    REPLICA_BREAKERS = Gauge "spillway_replica_breakers_open" [replica];

    /// Configured models that the replica does not have, according to its models page or its
    /// replies.
    REPLICA_MODELS_MISSING = Gauge "spillway_replica_models_missing" [replica];

    /// Time from the request to the replica's first byte: an average that follows peaks at once.
    REPLICA_LATENCY = Gauge "spillway_replica_latency_seconds" [replica];

    /// 99th percentile of that time over the last seconds.
    REPLICA_P99 = Gauge "spillway_replica_p99_seconds" [replica];

    /// Load reported by the replica: `queued`, `running`, `kv_use`, `gpu_use`, `gpu_memory_use`,
    /// `pending`.
    REPLICA_LOAD = Gauge "spillway_replica_load" [replica, signal];

    /// Trust in the reported load: 1 if fresh, falling with age. Unknown signals have no series.
    REPLICA_TRUST = Gauge "spillway_replica_load_trust" [replica, signal];

    /// Changes of a replica's state.
    REPLICA_TRANSITIONS = Counter "spillway_replica_transitions" [replica, to, why];

    /// Failed requests by kind of fault: `connect`, `connect_timeout`, `reset`, `bad_reply`,
    /// `silent`, `server_error`, `engine_gone`, `cut`, `stalled`.
    REPLICA_FAULTS = Counter "spillway_replica_faults" [replica, fault];

    /// Finished requests by last replica, reason of its choice and class of status.
    REPLICA_REQUESTS = Counter "spillway_replica_requests" [replica, reason, status]
        with reason of Reason in "access-log.md#values-of-reason";

    /// Checks of replicas by result: `active`, `deep` and `scrape`.
    REPLICA_CHECKS = Counter "spillway_replica_checks" [replica, check, result];

    /// 1 if no replica is open, with the state of the replicas that serve instead.
    LAST_RESORT = Gauge "spillway_last_resort" [route, model, admission]
        shown by "max by (route, model, admission) (spillway_last_resort) == 1";

    /// Requests for which an overflow replica was tried. `reason`: why no other replica could serve
    /// in time, as in `spillway_sheds` (`queue_full`, `waited`, …), or `waiting`, `no_replica`,
    /// `all_busy`, `all_resting`, `all_tried`, `failed`, `refused`. `result`: `served`, `failed`.
    OVERFLOW_REQUESTS = Counter "spillway_overflow_requests" [replica, reason, result];

    /// Tokens of requests that an overflow replica served: `prompt`, `completion`, `cached`.
    OVERFLOW_TOKENS = Counter "spillway_overflow_tokens" [replica, kind];

    /// Cost of an overflow replica for the operator, by its `price`.
    OVERFLOW_COST = Counter "spillway_overflow_cost" [replica]
        shown by "sum by (replica) (increase(spillway_overflow_cost_total[1d]))";

    /// Requests that were not sent to an overflow replica because of a cap: `share`, `day`,
    /// `month`.
    OVERFLOW_CAPPED = Counter "spillway_overflow_capped" [replica, cap];

    /// Share of an overflow replica's budget that all nodes have spent: 1 is the whole budget.
    /// `period`: `day`, `month`.
    OVERFLOW_BUDGET_USED = Gauge "spillway_overflow_budget_used" [replica, period];

    /// 1 for the current state of each `[[discovery]]`: `pending` (no answer yet), `answered`,
    /// `empty`, `stale` (it fails, and earlier results are in use) or `unanswered` (it never got an
    /// answer).
    DISCOVERY_STATE = Gauge "spillway_discovery_state" [discovery, state]
        shown by "max by (discovery, state) (spillway_discovery_state) == 1";

    /// Replicas of the discovery that are in use.
    DISCOVERY_REPLICAS = Gauge "spillway_discovery_replicas" [discovery];

    /// Age of the discovery's last usable answer. Without an answer there is no series.
    DISCOVERY_ANSWER_AGE = Gauge "spillway_discovery_answer_age_seconds" [discovery];

    /// Results of checks that were dropped because their queue was full.
    FACTS_DROPPED = Counter "spillway_facts_dropped" [];
}
