//! Metrics of the agreed state of the cluster, and of certificates.

use super::spec::catalog;

catalog! {
    "What the cluster agrees on, and certificates";

    /// Certificate authorities that this node trusts: 2 while one replaces another.
    CERTIFICATE_AUTHORITIES = Gauge "spillway_certificate_authorities" [];

    /// Expiry of this node's certificate, in seconds since 1970
    /// ([certificates.md](../guides/certificates.md#watching) has an alert).
    CERTIFICATE_EXPIRES = Gauge "spillway_certificate_expires_seconds" []
        shown by "(min (spillway_certificate_expires_seconds) - time()) / 86400";

    /// Expiry of a CA that this node trusts, in seconds since 1970; `authority` is the beginning of
    /// its SHA-256.
    AUTHORITY_EXPIRES = Gauge "spillway_certificate_authority_expires_seconds" [authority]
        shown by "(min by (authority) (spillway_certificate_authority_expires_seconds) - time()) / 86400";

    /// Expiry of a listener's certificate, in seconds since 1970; `listener` is its address in the
    /// config, or `admin`.
    LISTENER_EXPIRES = Gauge "spillway_listener_certificate_expires_seconds" [listener]
        shown by "(min by (listener) (spillway_listener_certificate_expires_seconds) - time()) / 86400";

    /// 1 for the role of this node: `learner`, `follower`, `candidate`, `leader`, `isolated_leader`
    /// (no quorum responds), `stopped`.
    CONTROL_ROLE = Gauge "spillway_control_role" [role]
        shown by r#"count(spillway_control_role{role="leader"} == 1)"#;

    /// Latest term of the cluster's log.
    CONTROL_TERM = Gauge "spillway_control_term" [];

    /// Last log entry applied by this node.
    CONTROL_APPLIED = Gauge "spillway_control_applied_index" []
        shown by "max(spillway_control_applied_index) - min(spillway_control_applied_index)";

    /// Last entry in this node's log.
    CONTROL_LAST = Gauge "spillway_control_last_index" [];

    /// Maximum age of this node's copy of the state, or the time since its start if it has had no
    /// quorum yet; alert above a few seconds.
    CONTROL_AGE = Gauge "spillway_control_age_seconds" [];

    /// Nodes with a problem of this kind, as far as this node knows: `disk_from_the_past`,
    /// `state_differs`, `two_processes`, `behind` (the node can't follow its leader); alert on any
    /// ([alerts.md](../guides/alerts.md#spillwaystatetrouble)).
    CONTROL_TROUBLES = Gauge "spillway_control_troubles" [kind];

    /// Nodes that vote.
    CONTROL_VOTERS = Gauge "spillway_control_voters" [];

    /// Bytes of entries in this node's log.
    CONTROL_LOG_BYTES = Gauge "spillway_control_log_bytes" [];

    /// Time for which the disk of this node's log has not completed a write or an open; 0 while
    /// none is pending. Alert above a few seconds: the disk hangs.
    CONTROL_DISK_WAITING = Gauge "spillway_control_disk_waiting_seconds" []
        shown by "max(spillway_control_disk_waiting_seconds)";

    /// Synchronous writes to the disk of this node's log.
    CONTROL_DISK_WRITES = Counter "spillway_control_disk_writes" [];

    /// Total time of these writes.
    CONTROL_DISK_WRITE_SECONDS = Counter "spillway_control_disk_write_seconds" []
        shown by "rate(spillway_control_disk_write_seconds_total[5m]) / rate(spillway_control_disk_writes_total[5m])";

    /// Models, splits, routes and registered replicas of the cluster, by their use on this node:
    /// `used`, `hides` (replaces one in the config), `in_part`, `unusable`; alert on the last two.
    CONTROL_ITEMS = Gauge "spillway_control_items" [kind, use]
        shown by r#"sum by (kind, use) (spillway_control_items{use=~"in_part|unusable"}) > 0"#;
}
