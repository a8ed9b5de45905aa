//! Requests: metrics.

use spillway_route::ShedReason;
use spillway_types::{End, EstimateReason, Hedge};

use super::spec::catalog;

catalog! {
    "Requests";

    /// Finished requests. `status` is the status sent to the client, 499 if the client disconnected
    /// first.
    REQUESTS = Counter "spillway_requests" [route, model, status, end]
        with end of End in "access-log.md#values-of-end"
        shown by r#"sum by (route, model) (rate(spillway_requests_total{status=~"5.."}[5m])) / sum by (route, model) (rate(spillway_requests_total[5m]))"#;

    /// Request head to the first token of a successful stream.
    FIRST_TOKEN = Histogram "spillway_time_to_first_token_seconds" [route, model];

    /// Request head to the end of a successful reply that is not a stream: such a reply has no
    /// separate first token.
    REPLY = Histogram "spillway_reply_seconds" [route, model];

    /// Time between events of a stream; events that arrive together share one gap.
    TOKEN_GAP = Histogram "spillway_inter_token_seconds" [route, model];

    /// Request head to the end of the reply, of all requests.
    DURATION = Histogram "spillway_request_duration_seconds" [route, model];

    /// Gateway's own time before the request is sent to a replica, excluding the client's upload.
    OVERHEAD = Histogram "spillway_gateway_overhead_seconds" [route, model];

    /// Tokens: `prompt`, `completion`, and `cached` for cached prompt tokens, as reported in
    /// replies, else estimated. `estimated` is the estimated part of `prompt` and `completion`
    /// ([usage](../guides/usage.md#what-is-exact)).
    TOKENS = Counter "spillway_tokens" [route, model, kind]
        shown by r#"sum by (model) (rate(spillway_tokens_total{kind="cached"}[5m])) / sum by (model) (rate(spillway_tokens_total{kind="prompt"}[5m]))"#;

    /// Tokens of this node's own clients, by tenant and by the same kinds; tenants beyond 256 count
    /// as `_other`. For keys see `GET /usage` ([admin API](admin-api.md#usage)).
    TENANT_TOKENS = Counter "spillway_tenant_tokens" [tenant, kind]
        shown by "sum by (tenant, kind) (increase(spillway_tenant_tokens_total[1d]))";

    /// Requests of this node's own clients with estimated tokens.
    USAGE_ESTIMATES = Counter "spillway_usage_estimates" [reason]
        with reason of EstimateReason
        shown by "sum by (reason) (rate(spillway_usage_estimates_total[5m]))";

    /// Finished requests of this node's own clients, by tenant: `ok`, or `error` for a status of 400
    /// or more.
    TENANT_REQUESTS = Counter "spillway_tenant_requests" [tenant, result];

    /// Cost of the requests of this node's own clients, in the currency of the prices in the config
    /// (`[[price]]`). `GET /v1/usage` has exact sums; this metric is a floating-point number.
    TENANT_COST = Counter "spillway_tenant_cost" [tenant]
        shown by "sum by (tenant) (increase(spillway_tenant_cost_total[1d]))";

    /// Finished requests by arm of a split. `status` is a class such as `2xx`, or `fallback` if the
    /// arm's model could not serve and another model replied.
    SPLIT_REQUESTS = Counter "spillway_split_requests" [split, arm, status];

    /// Failed requests by arm of a split: `fallback` (another model replied), `refused` (503 or 504
    /// from this node because of load or a missed deadline), `status` (5xx, or the equivalent gRPC
    /// status), and incomplete replies: `cut`, `stalled`, `deadline_passed`.
    SPLIT_ERRORS = Counter "spillway_split_errors" [split, arm, reason]
        shown by r#"sum by (split, arm) (rate(spillway_split_errors_total[5m])) / sum by (split, arm) (rate(spillway_split_requests_total[5m]))"#;

    /// Tokens by arm of a split: `prompt`, `completion`, and `cached` for cached prompt tokens.
    /// Tokens of fallbacks count for no arm.
    SPLIT_TOKENS = Counter "spillway_split_tokens" [split, arm, kind];

    /// Request head to the first token of a successful stream, by arm of a split.
    SPLIT_FIRST_TOKEN = Histogram "spillway_split_time_to_first_token_seconds" [split, arm];

    /// Request head to the end of a successful reply, including streams, by arm of a split.
    SPLIT_REPLY = Histogram "spillway_split_reply_seconds" [split, arm];

    /// Requests answered by another model (`served`) than the requested one (`model`).
    FALLBACKS = Counter "spillway_fallbacks" [model, served];

    /// Requests that were rejected with 503, 429 or 504, by reason and priority class
    /// ([admission.md](../explanation/admission.md#who-is-turned-away)).
    SHEDS = Counter "spillway_sheds" [route, model, reason, priority]
        with reason of ShedReason in "errors.md#reasons-for-shedding";

    /// Second attempts on routes with `hedge`.
    HEDGES = Counter "spillway_hedges" [route, result]
        with result of Hedge in "access-log.md#values-of-hedge"
        shown by r#"sum by (route) (rate(spillway_hedges_total{result="won"}[5m])) / sum by (route) (rate(spillway_hedges_total[5m]))"#;

    /// Retries. `unsent`: the replica never received the request, or refused it because of its load
    /// (429, 503); `reset`: the replica may have worked on it.
    RETRIES = Counter "spillway_retries" [cause];

    /// Broken streams on routes with `continue_streams`: `continued` by another replica or `ended`
    /// without one (reason `cut`, `stalled` or `error`), `refused` (why no replica could continue
    /// exactly, or `count`, `budget`), `failed` (`no_replica`, `late`, `attempt`); see
    /// docs/explanation/streams.md.
    CONTINUATIONS = Counter "spillway_stream_continuations" [result, reason];

    /// Requests that were abandoned after two engines had died while they worked on them. The log
    /// has their ids.
    ENGINES_DIED = Counter "spillway_engines_died" [];

    /// Retries that the retry budget did not allow.
    RETRIES_REFUSED = Counter "spillway_retries_refused" [];

    /// Clients that disconnected `before_reply` or `in_reply`.
    CANCELS = Counter "spillway_client_cancels" [phase];

    /// Requests that wait in this node for a slot at a replica.
    WAITING = Gauge "spillway_waiting" [model];

    /// Requests from other nodes that are being served here.
    GUESTS = Gauge "spillway_guests" [];

    /// Finished requests from other nodes, by class of status.
    GUEST_REQUESTS = Counter "spillway_guest_requests" [status];

    /// Responses of `/v1/responses` that their clients can't retrieve later: `id_taken` (the
    /// replica assigned an id that belongs to another tenant or model) or `id_too_long` (over 128
    /// bytes).
    RESPONSES_NOT_KEPT = Counter "spillway_responses_not_kept" [reason];

    /// Requests that were served elsewhere than earlier requests of their session or conversation.
    /// `kept`: `session` (cookie or header of a route's `session`) or `conversation` (prompts that
    /// another region served); `to`: another `replica` of this region, or another `region`. Each
    /// move is counted by one node: the one that the client asked, or one that dropped its choice
    /// in favour of another node's.
    HOME_CHANGES = Counter "spillway_home_changes" [kept, to];

    /// Updates about homes (of stored responses, sessions, conversations) that other nodes did not
    /// get: `node` (this node had too many to send) or `peer` (a node was unreachable for too long;
    /// counted for each such node). A node that misses a response asks for it when it is requested.
    HOME_NEWS_DROPPED = Counter "spillway_home_news_dropped" [queue];

    /// Requests that were refused by residency rules: `entry` (no permitted region could serve),
    /// `sending` and `receiving` (second checks, 0 unless the first check was wrong or rules have
    /// just changed).
    RESIDENCY_REFUSALS = Counter "spillway_residency_refusals" [at];

    /// Requests of admitted clients, by country according to the location database, or `unknown`;
    /// no series without a database. At most 677 series, because a code has two letters; real
    /// databases have about 250. Forwarded requests count at the node that their client asked.
    CLIENT_COUNTRY_REQUESTS = Counter "spillway_client_country_requests" [country];
}
