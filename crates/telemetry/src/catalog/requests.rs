//! Requests: metrics.

use super::spec::catalog;

catalog! {
    "Requests";

    /// Finished requests. `status` is what the client was sent, 499 if it left first. `end`:
    /// `complete`, `answered` (by the gateway itself), `cancelled_before_reply`,
    /// `cancelled_in_reply`, `cut`, `stalled`, `deadline_passed`.
    REQUESTS = Counter "spillway_requests" [route, model, status, end]
        shown by r#"sum by (route, model) (rate(spillway_requests_total{status=~"5.."}[5m])) / sum by (route, model) (rate(spillway_requests_total[5m]))"#;

    /// Request head to the first token of a stream that went well.
    FIRST_TOKEN = Histogram "spillway_time_to_first_token_seconds" [route, model];

    /// Request head to the end of a complete reply in one piece that went well: such a reply has no
    /// first token of its own.
    REPLY = Histogram "spillway_reply_seconds" [route, model];

    /// Time between events of a stream; events that arrive together share one gap.
    TOKEN_GAP = Histogram "spillway_inter_token_seconds" [route, model];

    /// Request head to the end of the reply, of all requests.
    DURATION = Histogram "spillway_request_duration_seconds" [route, model];

    /// Gateway's own time before the replica is asked, the client's upload excluded.
    OVERHEAD = Histogram "spillway_gateway_overhead_seconds" [route, model];

    /// Tokens: `prompt`, `completion`, and of the prompt `cached`, as replies reported them, else
    /// estimated. `estimated` is the part of `prompt` and `completion` that is estimated
    /// ([usage](../guides/usage.md#what-is-exact)).
    TOKENS = Counter "spillway_tokens" [route, model, kind]
        shown by r#"sum by (model) (rate(spillway_tokens_total{kind="cached"}[5m])) / sum by (model) (rate(spillway_tokens_total{kind="prompt"}[5m]))"#;

    /// Tokens of this node's own clients, by tenant and by the same kinds; tenants beyond 256 count as
    /// `_other`. Keys:
    /// `GET /usage` ([admin API](admin-api.md#usage)).
    TENANT_TOKENS = Counter "spillway_tenant_tokens" [tenant, kind]
        shown by "sum by (tenant, kind) (increase(spillway_tenant_tokens_total[1d]))";

    /// Requests of this node's own clients with estimated tokens, by reason: `unreported` (a complete
    /// reply without usage), `early_end` (it ended before its usage could be reported), `implausible`
    /// (a replica reported more than can be true).
    USAGE_ESTIMATES = Counter "spillway_usage_estimates" [reason]
        shown by "sum by (reason) (rate(spillway_usage_estimates_total[5m]))";

    /// Finished requests of this node's own clients, by tenant: `ok`, or `error` for a status of 400
    /// or more.
    TENANT_REQUESTS = Counter "spillway_tenant_requests" [tenant, result];

    /// Cost of the requests of this node's own clients, in the currency of the prices in the config
    /// (`[[price]]`). `GET /v1/usage` has exact sums; this one is a floating point number.
    TENANT_COST = Counter "spillway_tenant_cost" [tenant]
        shown by "sum by (tenant) (increase(spillway_tenant_cost_total[1d]))";

    /// Finished requests by arm of a split. `status` is a class, e.g. `2xx`, or `fallback` if the arm's
    /// model could not serve and another model replied.
    SPLIT_REQUESTS = Counter "spillway_split_requests" [split, arm, status];

    /// Requests that an arm of a split failed: `fallback` (another model replied), `refused` (503 or
    /// 504 of this node for load or lateness), `status` (5xx, or such a status of a gRPC call), and
    /// replies that broke off: `cut`, `stalled`, `deadline_passed`.
    SPLIT_ERRORS = Counter "spillway_split_errors" [split, arm, reason]
        shown by r#"sum by (split, arm) (rate(spillway_split_errors_total[5m])) / sum by (split, arm) (rate(spillway_split_requests_total[5m]))"#;

    /// Tokens by arm of a split: `prompt`, `completion`, and of the prompt `cached`. Those of
    /// fallbacks count for no arm.
    SPLIT_TOKENS = Counter "spillway_split_tokens" [split, arm, kind];

    /// Request head to the first token of a stream that went well, by arm of a split.
    SPLIT_FIRST_TOKEN = Histogram "spillway_split_time_to_first_token_seconds" [split, arm];

    /// Request head to the end of a complete reply that went well, streams included, by arm of a
    /// split.
    SPLIT_REPLY = Histogram "spillway_split_reply_seconds" [split, arm];

    /// Requests that began to be answered by another model (`served`) than the one asked for
    /// (`model`).
    FALLBACKS = Counter "spillway_fallbacks" [model, served];

    /// Requests that were turned away with 503, 429 or 504, by reason
    /// ([admission.md](../explanation/admission.md#who-is-turned-away)) and class.
    SHEDS = Counter "spillway_sheds" [route, model, reason, priority];

    /// Second attempts on routes with `hedge`: `won` (began to reply first), `lost`, `failed`.
    HEDGES = Counter "spillway_hedges" [route, result]
        shown by r#"sum by (route) (rate(spillway_hedges_total{result="won"}[5m])) / sum by (route) (rate(spillway_hedges_total[5m]))"#;

    /// Retries. `unsent`: the replica never saw the request, or refused it for its load (429, 503); `reset`:
    /// it may have worked on it.
    RETRIES = Counter "spillway_retries" [cause];

    /// Streams whose replica broke off, on routes with `continue_streams`: `continued` by another
    /// replica or `ended` without one (reason `cut`, `stalled` or `error`), `refused` (why no
    /// replica could continue exactly, or `count`, `budget`), `failed` (`no_replica`, `late`,
    /// `attempt`); docs/explanation/streams.md.
    CONTINUATIONS = Counter "spillway_stream_continuations" [result, reason];

    /// Requests that were given up after two engines had died while they worked on them. The log has
    /// the id of each.
    ENGINES_DIED = Counter "spillway_engines_died" [];

    /// Retries that the budget did not allow.
    RETRIES_REFUSED = Counter "spillway_retries_refused" [];

    /// Clients that left `before_reply` or `in_reply`.
    CANCELS = Counter "spillway_client_cancels" [phase];

    /// Requests that wait in this node for a slot at a replica.
    WAITING = Gauge "spillway_waiting" [model];

    /// Requests that other nodes forwarded and that are served here now.
    GUESTS = Gauge "spillway_guests" [];

    /// Requests that other nodes forwarded, by class of status.
    GUEST_REQUESTS = Counter "spillway_guest_requests" [status];

    /// Replies of `/v1/responses` that their clients can't ask for again: `id_taken` (the replica
    /// gave out an id that belongs to another tenant or model) or `id_too_long` (over 128 bytes).
    RESPONSES_NOT_KEPT = Counter "spillway_responses_not_kept" [reason];

    /// Requests that were served elsewhere than the earlier ones that they belong to. `kept`:
    /// `session` (cookie or header of a route's `session`) or `conversation` (prompts that another
    /// region served); `to`: another `replica` of this region, or another `region`. One node counts
    /// a move: the one that the client asked, or one that gave its choice up for another node's.
    HOME_CHANGES = Counter "spillway_home_changes" [kept, to];

    /// News of homes (stored responses, sessions, conversations) that other nodes did not get: `node`
    /// (this node had too many to tell) or `peer` (a node was out of reach for too long; each such node
    /// counts). A request for a response that is missing there asks for it.
    HOME_NEWS_DROPPED = Counter "spillway_home_news_dropped" [queue];

    /// Requests that were not served because of where they may be: `entry` (no region that may
    /// could), `sending` and `receiving` (second looks, 0 unless a first one was wrong or rules
    /// just changed).
    RESIDENCY_REFUSALS = Counter "spillway_residency_refusals" [at];

    /// Requests of clients that were let in, by the country that the location database places them
    /// in, or `unknown`; nothing without a database. At most 677 series, as a code has two letters;
    /// real databases know about 250. Guests count where they came from.
    CLIENT_COUNTRY_REQUESTS = Counter "spillway_client_country_requests" [country];
}
