//! Metrics of fallbacks to another model.

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::registry::Registry;
use spillway_types::{ModelName, Outcome};

use crate::catalog;
use crate::register::{Labels, metric};

/// Counters of fallbacks.
#[derive(Debug)]
pub(crate) struct ChoiceMetrics {
    fallbacks: Family<Labels, Counter>,
}

impl ChoiceMetrics {
    pub(crate) fn new(registry: &mut Registry) -> Self {
        Self { fallbacks: metric(registry, &catalog::requests::FALLBACKS) }
    }

    pub(crate) fn record(&self, outcome: &Outcome) {
        let Some(model) = &outcome.fallback_for else { return };
        let served = outcome.model.as_ref().map(ModelName::to_string).unwrap_or_default();
        let labels = vec![("model", model.to_string()), ("served", served)];
        self.fallbacks.get_or_create(&labels).inc();
    }
}
