//! Metrics of discoveries.

use std::sync::atomic::AtomicU64;

use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;

use crate::catalog::replicas;
use crate::register::{Labels, metric, registered};

/// A discovery at the moment of a scrape.
#[derive(Clone, Debug)]
pub struct LiveDiscovery {
    /// Name of the discovery.
    pub name: String,
    /// Every state, and whether the discovery is in it.
    pub phases: Vec<(&'static str, bool)>,
    /// Replicas in use.
    pub replicas: u64,
    /// Age of the last answer that could be used; `None` if there was none.
    pub answer_age_s: Option<f64>,
}

registered! {
    /// Metrics of discoveries.
    #[derive(Debug)]
    pub(crate) struct DiscoveryMetrics {
        states: Family<Labels, Gauge> = metric(replicas::DISCOVERY_STATE),
        replicas: Family<Labels, Gauge> = metric(replicas::DISCOVERY_REPLICAS),
        answer_age: Family<Labels, Gauge<f64, AtomicU64>> = metric(replicas::DISCOVERY_ANSWER_AGE),
    }
}

impl DiscoveryMetrics {
    pub(crate) fn show(&self, discoveries: &[LiveDiscovery]) {
        // Cleared first, so that removed discoveries vanish.
        self.states.clear();
        self.replicas.clear();
        self.answer_age.clear();
        for discovery in discoveries {
            let labels = || vec![("discovery", discovery.name.clone())];
            for (phase, is_in_it) in &discovery.phases {
                let mut labels = labels();
                labels.push(("state", (*phase).to_owned()));
                self.states.get_or_create(&labels).set((*is_in_it).into());
            }
            let replicas = i64::try_from(discovery.replicas).unwrap_or(i64::MAX);
            self.replicas.get_or_create(&labels()).set(replicas);
            if let Some(age_s) = discovery.answer_age_s {
                self.answer_age.get_or_create(&labels()).set(age_s);
            }
        }
    }
}
