//! The metrics registry: outcomes in, Prometheus text out.

use std::sync::{Mutex, PoisonError};

use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::Registry;
use spillway_types::{Outcome, SignFault};
use spillway_usage::{Money, UsageLine, UsageLines};

use crate::arm_metrics::ArmMetrics;
use crate::catalog;
use crate::certificate_metrics::CertificateMetrics;
use crate::choices::ChoiceMetrics;
use crate::discovery_metrics::DiscoveryMetrics;
use crate::dns_metrics::DnsMetrics;
use crate::geo_metrics::GeoMetrics;
use crate::knowledge_metrics::KnowledgeMetrics;
use crate::limit_metrics::LimitMetrics;
use crate::live::Live;
use crate::node_metrics::NodeMetrics;
use crate::overflow_metrics::OverflowMetrics;
use crate::region_metrics::RegionMetrics;
use crate::replica_metrics::ReplicaMetrics;
use crate::request_metrics::RequestMetrics;
use crate::route_model_metrics::{RouteModelFamilies, RouteModels};
use crate::shed_metrics::ShedMetrics;
use crate::usage::UsageMetrics;

/// All metrics of one node.
#[derive(Debug)]
pub struct Metrics {
    registry: Registry,
    places: Mutex<RouteModels>,
    families: RouteModelFamilies,
    arms: ArmMetrics,
    choices: ChoiceMetrics,
    sheds: ShedMetrics,
    requests: RequestMetrics,
    usage: Mutex<UsageLines>,
    tenants: UsageMetrics,
    overflow: OverflowMetrics,
    replicas: ReplicaMetrics,
    regions: RegionMetrics,
    dns: DnsMetrics,
    geo: GeoMetrics,
    knowledge: KnowledgeMetrics,
    limits: LimitMetrics,
    certificates: CertificateMetrics,
    discoveries: DiscoveryMetrics,
    node: NodeMetrics,
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
            requests: RequestMetrics::new(&mut r),
            usage: Mutex::default(),
            tenants: UsageMetrics::new(&mut r),
            overflow: OverflowMetrics::new(&mut r),
            places: Mutex::default(),
            replicas: ReplicaMetrics::new(&mut r),
            regions: RegionMetrics::new(&mut r),
            dns: DnsMetrics::new(&mut r),
            geo: GeoMetrics::new(&mut r),
            knowledge: KnowledgeMetrics::new(&mut r),
            limits: LimitMetrics::new(&mut r),
            certificates: CertificateMetrics::new(&mut r),
            discoveries: DiscoveryMetrics::new(&mut r),
            node: NodeMetrics::new(&mut r),
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
        self.tenants.record(outcome);
        self.requests.record(outcome);
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
        self.node.record_reload(applied);
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
        self.discoveries.show(&live.discoveries);
        self.requests.show(live);
        self.node.show(live);
    }
}

#[cfg(test)]
#[path = "metrics_test.rs"]
mod tests;
