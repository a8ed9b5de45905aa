//! Metrics of the node itself: its connections, memory, logs, health and standing with clients.

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;
use spillway_types::AwayReason;

use crate::catalog::{MetricSpec, limits, node, regions, replicas};
use crate::live::{Live, LiveHealth};
use crate::register::{Labels, from_zero, metric, raise, raise_each, registered, signed};

/// States of a node's health.
const HEALTH_STATES: [&str; 3] = ["healthy", "degraded", "unhealthy"];

registered! {
    /// Metrics of a node.
    #[derive(Debug)]
    pub(crate) struct NodeMetrics {
        closed: Family<Labels, Counter> = metric(node::CONNECTIONS_CLOSED),
        access: Family<Labels, Counter> = metric(limits::ACCESS),
        lines_lost: Family<Labels, Counter> = metric(node::LOG_LINES_LOST),
        spans: Family<Labels, Counter> = metric(node::SPANS),
        outcomes_dropped: Counter = metric(node::OUTCOMES_DROPPED),
        reloads: Family<Labels, Counter> = reloads(node::RELOADS),
        takes_clients: Gauge = metric(regions::TAKES_CLIENTS),
        steered_away: Family<Labels, Gauge> = metric(regions::STEERED_AWAY),
        last_resort: Family<Labels, Gauge> = metric(replicas::LAST_RESORT),
        facts_dropped: Counter = metric(replicas::FACTS_DROPPED),
        client_connections: Gauge = metric(node::CLIENT_CONNECTIONS),
        body_bytes: Gauge = metric(node::BODY_BYTES),
        ahead_bytes: Gauge = metric(node::READ_AHEAD_BYTES),
        ahead_replies: Family<Labels, Counter> = metric(node::READ_AHEAD_REPLIES),
        streams_closed: Family<Labels, Counter> = metric(node::STREAMS_CLOSED),
        memory: Family<Labels, Gauge> = metric(node::MEMORY_BYTES),
        health: Family<Labels, Gauge> = metric(node::HEALTH),
        health_problems: Family<Labels, Gauge> = metric(node::HEALTH_PROBLEMS),
    }
}

impl NodeMetrics {
    /// Counts a reload of the config.
    pub(crate) fn record_reload(&self, applied: bool) {
        let result = if applied { "applied" } else { "refused" };
        self.reloads.get_or_create(&vec![("result", result.to_owned())]).inc();
    }

    /// Shows the values of a scrape.
    pub(crate) fn show(&self, live: &Live) {
        self.show_standing(live);
        self.show_health(&live.health);
        raise(&self.facts_dropped, live.facts_dropped);
        self.client_connections.set(signed(live.client_connections));
        self.body_bytes.set(signed(live.body_bytes));
        self.ahead_bytes.set(signed(live.ahead_bytes));
        raise_each(&self.ahead_replies, "state", &live.ahead_replies);
        raise_each(&self.streams_closed, "reason", &live.streams_closed);
        for (kind, bytes) in &live.memory {
            self.memory.get_or_create(&vec![("kind", (*kind).to_owned())]).set(signed(*bytes));
        }
        raise_each(&self.closed, "reason", &live.connections_closed);
        for (tenant, result, total) in &live.access {
            let labels = vec![("tenant", tenant.clone()), ("result", (*result).to_owned())];
            raise(&self.access.get_or_create(&labels), *total);
        }
        raise(&self.outcomes_dropped, live.outcomes_dropped);
        raise_each(&self.lines_lost, "log", &live.lines_lost);
        raise_each(&self.spans, "result", &live.spans);
    }

    /// Shows whether clients should come here, and what serves them where no replica is open.
    fn show_standing(&self, live: &Live) {
        self.takes_clients.set(live.steering.takes_clients().into());
        // All of them, so that reasons that do not hold show 0.
        for reason in AwayReason::ALL {
            let is_so = live.steering.reason() == Some(reason);
            let labels = vec![("reason", reason.name().to_owned())];
            self.steered_away.get_or_create(&labels).set(is_so.into());
        }
        // Cleared first, so that recovered routes and models vanish.
        self.last_resort.clear();
        for resort in &live.last_resorts {
            let labels = vec![
                ("route", resort.route.clone()),
                ("model", resort.model.clone()),
                ("admission", resort.admission.as_str().to_owned()),
            ];
            self.last_resort.get_or_create(&labels).set(1);
        }
    }

    fn show_health(&self, health: &LiveHealth) {
        for state in HEALTH_STATES {
            let is_so = health.state == state;
            self.health.get_or_create(&vec![("state", state.to_owned())]).set(is_so.into());
        }
        for (kind, number) in &health.problems {
            let labels = vec![("kind", (*kind).to_owned())];
            self.health_problems.get_or_create(&labels).set(signed(*number));
        }
    }
}

/// Registers the counter of reloads, which begins with a 0 for each result.
fn reloads(registry: &mut Registry, spec: &MetricSpec) -> Family<Labels, Counter> {
    from_zero(metric(registry, spec), "result", ["applied", "refused"])
}
