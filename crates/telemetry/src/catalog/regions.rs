//! Other regions and nodes: metrics.

use super::spec::catalog;

catalog! {
    "Other regions and nodes";

    /// 1 if clients are to be sent to this node, as its `/steering` says.
    TAKES_CLIENTS = Gauge "spillway_takes_clients" []
        shown by "spillway_takes_clients == 0";

    /// 1 for the reason why none are to be sent to it, 0 for all others: `draining`, `ordered`,
    /// `starting`, `no_usable_replica`, `shedding`.
    STEERED_AWAY = Gauge "spillway_clients_steered_away" [reason]
        shown by "max by (reason) (spillway_clients_steered_away) == 1";

    /// 1 if requests could be sent to the region.
    REGION_REACHABLE = Gauge "spillway_region_reachable" [region]
        shown by "min by (region) (spillway_region_reachable) == 0";

    /// 1 if clients are to be sent to the region: it reports, and says so
    /// ([steering.md](../guides/steering.md)).
    REGION_TAKES_CLIENTS = Gauge "spillway_region_takes_clients" [region]
        shown by "min by (region) (spillway_region_takes_clients)";

    /// Time there and back, smoothed.
    REGION_RTT = Gauge "spillway_region_rtt_seconds" [region];

    /// Since its report was true.
    REGION_AGE = Gauge "spillway_region_report_age_seconds" [region];

    /// 1 while the region is left out because too much of what this node sent there failed.
    REGION_BREAKER_OPEN = Gauge "spillway_region_breaker_open" [region]
        shown by "max by (region) (spillway_region_breaker_open) == 1";

    /// Share of its requests that it gets, below 1 for a while after it came back.
    REGION_RAMP = Gauge "spillway_region_ramp" [region];

    /// Requests of this node that the region serves now.
    SPILL_IN_FLIGHT = Gauge "spillway_spill_in_flight" [region, model];

    /// Requests sent there: `served`, `refused` (and sent elsewhere), `broken`.
    SPILL_REQUESTS = Counter "spillway_spill_requests" [region, model, result];

    /// 1 if the connection to that node stands: `control` or `data`.
    LINK_CONNECTED = Gauge "spillway_link_connected" [peer, region, kind]
        shown by "min by (peer, kind) (spillway_link_connected) == 0";

    /// Time there and back on it.
    LINK_RTT = Gauge "spillway_link_rtt_seconds" [peer, region, kind];

    /// Attempts to connect that failed.
    LINK_DIALS_FAILED = Counter "spillway_link_dials_failed" [peer, region, kind];

    /// Peers that were refused before anything of them was read.
    LINK_REFUSALS = Counter "spillway_link_refusals" [reason];

    /// Nodes that asked at the gate to be members, or whether they are, and whose request was read.
    LINK_STRANGERS = Counter "spillway_link_strangers" [];

    /// Load reports: `sent`, `taken`, or why they were not taken.
    GOSSIP_DATAGRAMS = Counter "spillway_gossip_datagrams" [result];

    /// Bytes of load reports.
    GOSSIP_BYTES = Counter "spillway_gossip_sent_bytes" [];
}
