//! The node itself: metrics.

use super::spec::catalog;

catalog! {
    "The node itself";

    /// Client connections open now.
    CLIENT_CONNECTIONS = Gauge "spillway_client_connections" [];

    /// Client connections that the gateway closed: `full`, `client` (one has too many), `memory`, `handshake`,
    /// `slow_head`, `idle`, `stalled`, `resets` (abandoned requests, or tiny DATA frames), `frames`
    /// ([control frames](protocols.md#control-frames-of-http2) without end).
    CONNECTIONS_CLOSED = Counter "spillway_client_connections_closed" [reason];

    /// Streams of HTTP/2 that the gateway closed while their connection went on: `stalled` (their
    /// client took nothing of them).
    STREAMS_CLOSED = Counter "spillway_client_streams_closed" [reason];

    /// Request bodies held in memory now.
    BODY_BYTES = Gauge "spillway_request_body_bytes" [];

    /// Replies held in memory now for clients that are slow.
    READ_AHEAD_BYTES = Gauge "spillway_read_ahead_bytes" [];

    /// Replies that were read ahead of their clients: `begun`, and those of them that there was no
    /// more room for, so that their replica had to wait: `full`.
    READ_AHEAD_REPLIES = Counter "spillway_read_ahead_replies" [state];

    /// Real memory of the process: `used`, and the `ceiling` from 90 % of which on new requests are
    /// refused.
    MEMORY_BYTES = Gauge "spillway_memory_bytes" [kind]
        shown by r#"spillway_memory_bytes{kind="used"} / ignoring (kind) spillway_memory_bytes{kind="ceiling"}"#;

    /// 1 for the state of the node's health, as `spillway status` has it: `healthy`, `degraded`,
    /// `unhealthy`; 0 for the others.
    HEALTH = Gauge "spillway_health" [state]
        shown by r#"spillway_health{state!="healthy"} == 1"#;

    /// Problems that the node knows of, by kind. All [kinds](../guides/incidents.md#kinds-of-problems)
    /// count, those for information alone, too.
    HEALTH_PROBLEMS = Gauge "spillway_health_problems" [kind]
        shown by "spillway_health_problems > 0";

    /// Lines that are missing in a log, since its disk or its reader was too slow, or it can't be written:
    /// `access`, or `node` for the log on standard error.
    LOG_LINES_LOST = Counter "spillway_log_lines_lost" [log];

    /// Spans for the collector of traces: `sent`, or `lost` since it was too slow or did not answer.
    SPANS = Counter "spillway_spans" [result]
        shown by r#"rate(spillway_spans_total{result="lost"}[5m]) > 0"#;

    /// Outcomes missing from the metrics above since their queue was full.
    OUTCOMES_DROPPED = Counter "spillway_outcomes_dropped" [];

    /// Reloads of the config: `applied`, `refused`.
    RELOADS = Counter "spillway_config_reloads" [result]
        shown by r#"increase(spillway_config_reloads_total{result="refused"}[1h]) > 0"#;

    /// Always 1.
    BUILD = Info "spillway_build" [version, node, region]
        shown by "count by (version) (spillway_build_info)";
}
