//! Other regions and nodes: metrics.

use spillway_types::AwayReason;

use super::spec::catalog;

catalog! {
    "Other regions and nodes";

    /// 1 if this node should get new clients, as in `/steering`.
    TAKES_CLIENTS = Gauge "spillway_takes_clients" []
        shown by "spillway_takes_clients == 0";

    /// 1 for the reason why this node should get no new clients, 0 for all others.
    STEERED_AWAY = Gauge "spillway_clients_steered_away" [reason]
        with reason of AwayReason
        shown by "max by (reason) (spillway_clients_steered_away) == 1";

    /// 1 if requests can be sent to the region.
    REGION_REACHABLE = Gauge "spillway_region_reachable" [region]
        shown by "min by (region) (spillway_region_reachable) == 0";

    /// 1 if the region should get new clients: it sends reports, and accepts clients
    /// ([steering.md](../guides/steering.md)).
    REGION_TAKES_CLIENTS = Gauge "spillway_region_takes_clients" [region]
        shown by "min by (region) (spillway_region_takes_clients)";

    /// Round-trip time to the region, smoothed.
    REGION_RTT = Gauge "spillway_region_rtt_seconds" [region];

    /// Age of the region's report.
    REGION_AGE = Gauge "spillway_region_report_age_seconds" [region];

    /// 1 while the region is excluded because too many requests that this node sent there failed.
    REGION_BREAKER_OPEN = Gauge "spillway_region_breaker_open" [region]
        shown by "max by (region) (spillway_region_breaker_open) == 1";

    /// Share of its requests that the region gets, below 1 for a while after it recovered.
    REGION_RAMP = Gauge "spillway_region_ramp" [region];

    /// Requests of this node that the region is serving.
    SPILL_IN_FLIGHT = Gauge "spillway_spill_in_flight" [region, model];

    /// Requests sent to the region: `served`, `refused` (and sent elsewhere), `broken`.
    SPILL_REQUESTS = Counter "spillway_spill_requests" [region, model, result];

    /// 1 if the connection to the node is established: `control` or `data`.
    LINK_CONNECTED = Gauge "spillway_link_connected" [peer, region, kind]
        shown by "min by (peer, kind) (spillway_link_connected) == 0";

    /// Round-trip time of the connection.
    LINK_RTT = Gauge "spillway_link_rtt_seconds" [peer, region, kind];

    /// Failed attempts to connect to the node.
    LINK_DIALS_FAILED = Counter "spillway_link_dials_failed" [peer, region, kind];

    /// Peers that were refused before their data was read.
    LINK_REFUSALS = Counter "spillway_link_refusals" [reason];

    /// Nodes that asked to join, or asked whether they are members, and whose request was read.
    LINK_STRANGERS = Counter "spillway_link_strangers" [];

    /// Load reports: `sent`, `taken`, or why they were not taken.
    GOSSIP_DATAGRAMS = Counter "spillway_gossip_datagrams" [result];

    /// Bytes of load reports.
    GOSSIP_BYTES = Counter "spillway_gossip_sent_bytes" [];
}
