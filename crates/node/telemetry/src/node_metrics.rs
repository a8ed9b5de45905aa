//! Metrics of the node itself: memory, connections, logs, reloads and health.

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

use crate::catalog::{MetricSpec, node, replicas};
use crate::live::{Live, LiveHealth};
use crate::register::{Labels, from_zero, metric, raise, raise_each, registered, signed};

/// States of a node's health.
const HEALTH_STATES: [&str; 3] = ["healthy", "degraded", "unhealthy"];

registered! {
    /// Metrics of the process and its queues.
    #[derive(Debug)]
    pub(crate) struct NodeMetrics {
        closed: Family<Labels, Counter> = metric(node::CONNECTIONS_CLOSED),
        client_connections: Gauge = metric(node::CLIENT_CONNECTIONS),
        streams_closed: Family<Labels, Counter> = metric(node::STREAMS_CLOSED),
        body_bytes: Gauge = metric(node::BODY_BYTES),
        ahead_bytes: Gauge = metric(node::READ_AHEAD_BYTES),
        ahead_replies: Family<Labels, Counter> = metric(node::READ_AHEAD_REPLIES),
        memory: Family<Labels, Gauge> = metric(node::MEMORY_BYTES),
        lines_lost: Family<Labels, Counter> = metric(node::LOG_LINES_LOST),
        spans: Family<Labels, Counter> = metric(node::SPANS),
        outcomes_dropped: Counter = metric(node::OUTCOMES_DROPPED),
        facts_dropped: Counter = metric(replicas::FACTS_DROPPED),
        reloads: Family<Labels, Counter> = reloads(node::RELOADS),
        health: Family<Labels, Gauge> = metric(node::HEALTH),
        health_problems: Family<Labels, Gauge> = metric(node::HEALTH_PROBLEMS),
    }
}

impl NodeMetrics {
    /// Counts a reload of the config.
    pub(crate) fn reload(&self, is_applied: bool) {
        let result = if is_applied { "applied" } else { "refused" };
        self.reloads.get_or_create(&vec![("result", result.to_owned())]).inc();
    }

    pub(crate) fn show(&self, live: &Live) {
        raise_each(&self.closed, "reason", &live.connections_closed);
        self.client_connections.set(signed(live.client_connections));
        raise_each(&self.streams_closed, "reason", &live.streams_closed);
        self.body_bytes.set(signed(live.body_bytes));
        self.ahead_bytes.set(signed(live.ahead_bytes));
        raise_each(&self.ahead_replies, "state", &live.ahead_replies);
        for (kind, bytes) in &live.memory {
            self.memory.get_or_create(&vec![("kind", (*kind).to_owned())]).set(signed(*bytes));
        }
        raise_each(&self.lines_lost, "log", &live.lines_lost);
        raise_each(&self.spans, "result", &live.spans);
        raise(&self.outcomes_dropped, live.outcomes_dropped);
        raise(&self.facts_dropped, live.facts_dropped);
        self.show_health(&live.health);
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

fn reloads(registry: &mut Registry, spec: &MetricSpec) -> Family<Labels, Counter> {
    from_zero(metric(registry, spec), "result", ["applied", "refused"])
}
