//! The metrics registry: outcomes in, Prometheus text out.

use std::sync::{Mutex, PoisonError};

use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::Registry;
use spillway_types::{Admission, AwayReason, End, Outcome, SignFault, Steering};
use spillway_usage::{Money, UsageLine, UsageLines};

use crate::arm_metrics::ArmMetrics;
use crate::catalog;
use crate::certificate_metrics::{CertificateMetrics, LiveCertificates};
use crate::choices::ChoiceMetrics;
use crate::discovery_metrics::{DiscoveryMetrics, LiveDiscovery};
use crate::dns_metrics::{DnsMetrics, LiveDns};
use crate::geo_metrics::{GeoMetrics, LiveGeo};
use crate::knowledge_metrics::{KnowledgeMetrics, LiveHot, LiveKnowledge};
use crate::limit_metrics::{LimitMetrics, LiveLimit};
use crate::overflow_metrics::{LiveOverflow, OverflowMetrics};
use crate::region_metrics::{LiveCluster, RegionMetrics};
use crate::register::{Labels, from_zero, metric, raise, raise_each, signed};
use crate::replica_metrics::{LiveReplica, ReplicaMetrics};
use crate::route_model_metrics::{RouteModelFamilies, RouteModels};
use crate::shed_metrics::ShedMetrics;
use crate::usage::{LiveBudget, UsageMetrics};

/// States of a node's health.
const HEALTH_STATES: [&str; 3] = ["healthy", "degraded", "unhealthy"];

/// All metrics of one node.
#[derive(Debug)]
pub struct Metrics {
    registry: Registry,
    places: Mutex<RouteModels>,
    families: RouteModelFamilies,
    arms: ArmMetrics,
    choices: ChoiceMetrics,
    sheds: ShedMetrics,
    usage: Mutex<UsageLines>,
    tenants: UsageMetrics,
    overflow: OverflowMetrics,
    retries: Family<Labels, Counter>,
    cancels: Family<Labels, Counter>,
    closed: Family<Labels, Counter>,
    access: Family<Labels, Counter>,
    retries_refused: Counter,
    engines_died: Counter,
    residency: Family<Labels, Counter>,
    responses_not_kept: Family<Labels, Counter>,
    home_news_dropped: Family<Labels, Counter>,
    home_changes: Family<Labels, Counter>,
    continuations: Family<Labels, Counter>,
    outcomes_dropped: Counter,
    lines_lost: Family<Labels, Counter>,
    spans: Family<Labels, Counter>,
    reloads: Family<Labels, Counter>,
    replicas: ReplicaMetrics,
    regions: RegionMetrics,
    dns: DnsMetrics,
    geo: GeoMetrics,
    knowledge: KnowledgeMetrics,
    limits: LimitMetrics,
    certificates: CertificateMetrics,
    waiting: Family<Labels, Gauge>,
    guests: Gauge,
    takes_clients: Gauge,
    steered_away: Family<Labels, Gauge>,
    guest_requests: Family<Labels, Counter>,
    last_resort: Family<Labels, Gauge>,
    discoveries: DiscoveryMetrics,
    facts_dropped: Counter,
    client_connections: Gauge,
    body_bytes: Gauge,
    ahead_bytes: Gauge,
    ahead_replies: Family<Labels, Counter>,
    streams_closed: Family<Labels, Counter>,
    memory: Family<Labels, Gauge>,
    health: Family<Labels, Gauge>,
    health_problems: Family<Labels, Gauge>,
}

/// Values at the moment of a scrape.
#[derive(Clone, Debug, Default)]
pub struct Live {
    /// Replicas of the current view.
    pub replicas: Vec<LiveReplica>,
    /// Client connections open now.
    pub client_connections: u64,
    /// Bytes of request bodies held in memory.
    pub body_bytes: u64,
    /// Bytes of replies held for clients that read slowly.
    pub ahead_bytes: u64,
    /// Replies since start that were read ahead of their clients, by state.
    pub ahead_replies: [(&'static str, u64); 2],
    /// Client streams since start that the gateway closed, by reason.
    pub streams_closed: [(&'static str, u64); 1],
    /// Memory of the process in bytes, by kind.
    pub memory: Vec<(&'static str, u64)>,
    /// Client connections since start that the gateway closed, by reason.
    pub connections_closed: Vec<(&'static str, u64)>,
    /// Requests for entry since start, by tenant and result.
    pub access: Vec<(String, &'static str, u64)>,
    /// Outcomes since start that did not fit into the queue.
    pub outcomes_dropped: u64,
    /// Lines since start that logs lost, by log.
    pub lines_lost: [(&'static str, u64); 2],
    /// Spans since start, by result.
    pub spans: [(&'static str, u64); 2],
    /// Retries since start that the retry budget refused.
    pub retries_refused: u64,
    /// Requests since start that were given up after two engines had died with them.
    pub engines_died: u64,
    /// Requests since start that were refused for residency, by the place that refused them.
    pub residency: Vec<(&'static str, u64)>,
    /// Replies of `/v1/responses` since start whose ids were not kept, by reason.
    pub responses_not_kept: Vec<(&'static str, u64)>,
    /// News of homes that other nodes did not get since start, by the queue that dropped them.
    pub home_news_dropped: Vec<(&'static str, u64)>,
    /// Sessions and conversations since start that moved elsewhere, by kind and destination.
    pub home_changes: Vec<(&'static str, &'static str, u64)>,
    /// Streams since start whose replica broke off, by result and reason.
    pub continuations: Vec<(&'static str, &'static str, u64)>,
    /// Routes and models without an open replica.
    pub last_resorts: Vec<LastResort>,
    /// Requests waiting on this node, by model.
    pub waiting: Vec<(String, u32)>,
    /// Requests of other nodes that are being served here.
    pub guests: u32,
    /// Advice about sending clients to this node.
    pub steering: Steering,
    /// Other regions and nodes.
    pub cluster: LiveCluster,
    /// Name server; `None` if this node is not one.
    pub dns: Option<LiveDns>,
    /// Discoveries of replicas.
    pub discoveries: Vec<LiveDiscovery>,
    /// Facts about replicas since start that did not fit into their queue.
    pub facts_dropped: u64,
    /// Knowledge of caches and speeds.
    pub knowledge: LiveKnowledge,
    /// Hot prompts of the cluster; `None` if this node takes no part in them.
    pub hot: Option<LiveHot>,
    /// Locations of clients.
    pub geo: LiveGeo,
    /// State of limits on this node.
    pub limits: Vec<LiveLimit>,
    /// Budgets of tenants.
    pub budgets: Vec<LiveBudget>,
    /// Caps of overflow replicas.
    pub overflow: Vec<LiveOverflow>,
    /// Expiry of certificates.
    pub certificates: LiveCertificates,
    /// Last judgement of the node's health.
    pub health: LiveHealth,
}

/// Judgement of a node's health.
#[derive(Clone, Debug, Default)]
pub struct LiveHealth {
    /// State: `healthy`, `degraded` or `unhealthy`.
    pub state: &'static str,
    /// Number of problems by kind, of all kinds.
    pub problems: Vec<(&'static str, u64)>,
}

/// A route and model without an open replica.
#[derive(Clone, Debug)]
pub struct LastResort {
    /// Name of the route.
    pub route: String,
    /// Name of the model; empty for requests without one.
    pub model: String,
    /// Standing of the replicas that serve instead.
    pub admission: Admission,
}

impl Metrics {
    /// Makes a registry with every metric; `facts` become labels of the build metric.
    #[must_use]
    pub fn new(facts: Vec<(String, String)>) -> Self {
        let mut r = Registry::default();
        r.register(catalog::node::BUILD.name, catalog::node::BUILD.help(), Info::new(facts));
        Self {
            families: RouteModelFamilies::new(&mut r),
            arms: ArmMetrics::new(&mut r),
            choices: ChoiceMetrics::new(&mut r),
            sheds: ShedMetrics::new(&mut r),
            usage: Mutex::default(),
            tenants: UsageMetrics::new(&mut r),
            overflow: OverflowMetrics::new(&mut r),
            places: Mutex::default(),
            retries: metric(&mut r, &catalog::requests::RETRIES),
            cancels: metric(&mut r, &catalog::requests::CANCELS),
            closed: metric(&mut r, &catalog::node::CONNECTIONS_CLOSED),
            access: metric(&mut r, &catalog::limits::ACCESS),
            retries_refused: metric(&mut r, &catalog::requests::RETRIES_REFUSED),
            engines_died: metric(&mut r, &catalog::requests::ENGINES_DIED),
            residency: metric(&mut r, &catalog::requests::RESIDENCY_REFUSALS),
            responses_not_kept: metric(&mut r, &catalog::requests::RESPONSES_NOT_KEPT),
            home_news_dropped: metric(&mut r, &catalog::requests::HOME_NEWS_DROPPED),
            home_changes: metric(&mut r, &catalog::requests::HOME_CHANGES),
            continuations: metric(&mut r, &catalog::requests::CONTINUATIONS),
            lines_lost: metric(&mut r, &catalog::node::LOG_LINES_LOST),
            spans: metric(&mut r, &catalog::node::SPANS),
            outcomes_dropped: metric(&mut r, &catalog::node::OUTCOMES_DROPPED),
            reloads: from_zero(
                metric(&mut r, &catalog::node::RELOADS),
                "result",
                ["applied", "refused"],
            ),
            replicas: ReplicaMetrics::new(&mut r),
            regions: RegionMetrics::new(&mut r),
            dns: DnsMetrics::new(&mut r),
            geo: GeoMetrics::new(&mut r),
            knowledge: KnowledgeMetrics::new(&mut r),
            limits: LimitMetrics::new(&mut r),
            certificates: CertificateMetrics::new(&mut r),
            waiting: metric(&mut r, &catalog::requests::WAITING),
            takes_clients: metric(&mut r, &catalog::regions::TAKES_CLIENTS),
            steered_away: metric(&mut r, &catalog::regions::STEERED_AWAY),
            guests: metric(&mut r, &catalog::requests::GUESTS),
            guest_requests: metric(&mut r, &catalog::requests::GUEST_REQUESTS),
            last_resort: metric(&mut r, &catalog::replicas::LAST_RESORT),
            discoveries: DiscoveryMetrics::new(&mut r),
            facts_dropped: metric(&mut r, &catalog::replicas::FACTS_DROPPED),
            client_connections: metric(&mut r, &catalog::node::CLIENT_CONNECTIONS),
            body_bytes: metric(&mut r, &catalog::node::BODY_BYTES),
            ahead_bytes: metric(&mut r, &catalog::node::READ_AHEAD_BYTES),
            ahead_replies: metric(&mut r, &catalog::node::READ_AHEAD_REPLIES),
            streams_closed: metric(&mut r, &catalog::node::STREAMS_CLOSED),
            memory: metric(&mut r, &catalog::node::MEMORY_BYTES),
            health: metric(&mut r, &catalog::node::HEALTH),
            health_problems: metric(&mut r, &catalog::node::HEALTH_PROBLEMS),
            registry: r,
        }
    }

    /// Counts one finished request with its cost. Meant for one caller at a time: a second one would
    /// wait for a lock.
    pub fn record(&self, outcome: &Outcome, cost: Money) {
        let mut places = self.places.lock().unwrap_or_else(PoisonError::into_inner);
        places.of(outcome, &self.families).record(outcome, &self.families);
        self.arms.record(outcome);
        self.choices.record(outcome);
        self.sheds.record(outcome);
        self.replicas.request(outcome);
        self.usage.lock().unwrap_or_else(PoisonError::into_inner).record(outcome, cost);
        if outcome.is_guest {
            let class = format!("{}xx", outcome.status / 100);
            self.guest_requests.get_or_create(&vec![("status", class)]).inc();
        }
        self.tenants.record(outcome);
        self.record_retries(outcome);
        self.record_cancel(outcome.end);
    }

    /// Counts a finished request for which an overflow replica was asked, with its cost for the
    /// operator.
    pub fn record_overflow(&self, outcome: &Outcome, cost: Money) {
        self.overflow.record(outcome, cost);
    }

    /// Returns the usage of tenants and keys since the start.
    #[must_use]
    pub fn usage(&self) -> Vec<UsageLine> {
        self.usage.lock().unwrap_or_else(PoisonError::into_inner).lines()
    }

    /// Counts a reload of the config.
    pub fn record_reload(&self, applied: bool) {
        let result = if applied { "applied" } else { "refused" };
        self.reloads.get_or_create(&vec![("result", result.to_owned())]).inc();
    }

    /// Counts one reading of location databases that may have changed.
    pub fn record_geo_reload(&self, applied: bool) {
        self.geo.reload(applied);
    }

    /// Counts a replica's change to the state `to`. `why` is one of a fixed list.
    pub fn record_transition(&self, replica: &str, to: &'static str, why: &str) {
        self.replicas.transition(replica, to, why);
    }

    /// Counts a request that failed through the fault of `replica`.
    pub fn record_fault(&self, replica: &str, fault: SignFault) {
        self.replicas.fault(replica, fault);
    }

    /// Counts a check of `replica`.
    pub fn record_check(&self, replica: &str, check: &'static str, result: &'static str) {
        self.replicas.check(replica, check, result);
    }

    /// Returns all metrics as OpenMetrics text.
    #[must_use]
    pub fn scrape(&self, live: &Live) -> String {
        self.show(live);
        let mut text = String::new();
        // Writing into a String can't fail, so the only error this could give does not exist.
        if encode(&mut text, &self.registry).is_err() {
            text.clear();
        }
        text
    }

    fn record_retries(&self, outcome: &Outcome) {
        for (cause, count) in [("unsent", outcome.retries_unsent), ("reset", outcome.retries_reset)]
        {
            if count > 0 {
                let labels = vec![("cause", cause.to_owned())];
                self.retries.get_or_create(&labels).inc_by(u64::from(count));
            }
        }
    }

    fn record_cancel(&self, end: End) {
        let phase = match end {
            End::CancelledBeforeReply => "before_reply",
            End::CancelledInReply => "in_reply",
            End::Complete | End::Answered | End::Cut | End::Stalled | End::DeadlinePassed => return,
        };
        self.cancels.get_or_create(&vec![("phase", phase.to_owned())]).inc();
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

    fn show(&self, live: &Live) {
        self.replicas.show(&live.replicas);
        self.regions.show(&live.cluster);
        self.dns.show(live.dns.as_ref());
        self.geo.show(&live.geo);
        self.knowledge.show(&live.knowledge, live.hot.as_ref());
        self.limits.show(&live.limits);
        self.certificates.show(&live.certificates);
        self.tenants.show(&self.usage.lock().unwrap_or_else(PoisonError::into_inner));
        self.tenants.show_budgets(&live.budgets);
        self.overflow.show(&live.overflow);
        self.places.lock().unwrap_or_else(PoisonError::into_inner).show(&self.families);
        // Cleared first, so that models with no waiting request vanish.
        self.waiting.clear();
        for (model, count) in &live.waiting {
            let labels = vec![("model", model.clone())];
            self.waiting.get_or_create(&labels).set(i64::from(*count));
        }
        self.guests.set(i64::from(live.guests));
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
        self.discoveries.show(&live.discoveries);
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
        self.show_health(&live.health);
        raise(&self.outcomes_dropped, live.outcomes_dropped);
        raise_each(&self.lines_lost, "log", &live.lines_lost);
        raise_each(&self.spans, "result", &live.spans);
        raise(&self.retries_refused, live.retries_refused);
        raise(&self.engines_died, live.engines_died);
        raise_each(&self.residency, "at", &live.residency);
        raise_each(&self.responses_not_kept, "reason", &live.responses_not_kept);
        raise_each(&self.home_news_dropped, "queue", &live.home_news_dropped);
        for (kept, to, total) in &live.home_changes {
            let labels = vec![("kept", (*kept).to_owned()), ("to", (*to).to_owned())];
            raise(&self.home_changes.get_or_create(&labels), *total);
        }
        for (result, reason, total) in &live.continuations {
            let labels = vec![("result", (*result).to_owned()), ("reason", (*reason).to_owned())];
            raise(&self.continuations.get_or_create(&labels), *total);
        }
    }
}

#[cfg(test)]
mod metrics_test;
