//! The node itself: metrics.

use super::spec::catalog;

catalog! {
    "The node itself";

    /// Open client connections.
    CLIENT_CONNECTIONS = Gauge "spillway_client_connections" [];

    /// Client connections that the gateway closed: `full`, `client` (too many of one client),
    /// `memory`, `handshake`, `slow_head`, `idle`, `stalled`, `resets` (abandoned requests, or tiny
    /// DATA frames), `frames` ([control frames](protocols.md#control-frames-of-http2) beyond the
    /// budget).
    CONNECTIONS_CLOSED = Counter "spillway_client_connections_closed" [reason];

    /// HTTP/2 streams that the gateway closed while their connection stayed open: `stalled` (their
    /// client read nothing).
    STREAMS_CLOSED = Counter "spillway_client_streams_closed" [reason];

    /// Memory of buffered request bodies.
    BODY_BYTES = Gauge "spillway_request_body_bytes" [];

    /// Memory of replies buffered for slow clients.
    READ_AHEAD_BYTES = Gauge "spillway_read_ahead_bytes" [];

    /// Replies that were buffered for slow clients: `begun`, and `full` for those that reached a
    /// memory limit, so that their replica had to wait.
    READ_AHEAD_REPLIES = Counter "spillway_read_ahead_replies" [state];

    /// Memory of the process: `used`, and the `ceiling`; above 90 % of it new requests are refused.
    MEMORY_BYTES = Gauge "spillway_memory_bytes" [kind]
        shown by r#"spillway_memory_bytes{kind="used"} / ignoring (kind) spillway_memory_bytes{kind="ceiling"}"#;

    /// 1 for the node's health, as in `spillway status`: `healthy`, `degraded`, `unhealthy`; 0 for
    /// the others.
    HEALTH = Gauge "spillway_health" [state]
        shown by r#"spillway_health{state!="healthy"} == 1"#;

    /// Problems that the node knows of, by kind. All
    /// [kinds](../guides/incidents.md#kinds-of-problems) count, including informational ones.
    HEALTH_PROBLEMS = Gauge "spillway_health_problems" [kind]
        shown by "spillway_health_problems > 0";

    /// Lines missing from a log because its disk or reader was too slow, or it can't be written:
    /// `access`, or `node` for the log on standard error.
    LOG_LINES_LOST = Counter "spillway_log_lines_lost" [log];

    /// Spans for the trace collector: `sent`, or `lost` because it was too slow or did not answer.
    SPANS = Counter "spillway_spans" [result]
        shown by r#"rate(spillway_spans_total{result="lost"}[5m]) > 0"#;

    /// Outcomes missing from the metrics above because their queue was full.
    OUTCOMES_DROPPED = Counter "spillway_outcomes_dropped" [];

    /// Reloads of the config: `applied`, `refused`.
    RELOADS = Counter "spillway_config_reloads" [result]
        shown by r#"increase(spillway_config_reloads_total{result="refused"}[1h]) > 0"#;

    /// Always 1.
    BUILD = Info "spillway_build" [version, node, region]
        shown by "count by (version) (spillway_build_info)";
}
