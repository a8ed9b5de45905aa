//! Metrics of choices between models: arms of splits, and fallbacks to another model.

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::registry::Registry;
use spillway_types::{ModelName, Outcome};

use crate::catalog;
use crate::register::{Labels, metric};

/// Counters of choices between models.
#[derive(Debug)]
pub(crate) struct ChoiceMetrics {
    splits: Family<Labels, Counter>,
    fallbacks: Family<Labels, Counter>,
}

impl ChoiceMetrics {
    pub(crate) fn new(registry: &mut Registry) -> Self {
        Self {
            splits: metric(registry, &catalog::requests::SPLIT_REQUESTS),
            fallbacks: metric(registry, &catalog::requests::FALLBACKS),
        }
    }

    pub(crate) fn record(&self, outcome: &Outcome) {
        if let Some(arm) = &outcome.arm {
            let labels = vec![
                ("split", arm.split.to_string()),
                ("arm", arm.arm.to_string()),
                ("status", format!("{}xx", outcome.status / 100)),
            ];
            self.splits.get_or_create(&labels).inc();
        }
        if let Some(model) = &outcome.fallback_for {
            let served = outcome.model.as_ref().map(ModelName::to_string).unwrap_or_default();
            let labels = vec![("model", model.to_string()), ("served", served)];
            self.fallbacks.get_or_create(&labels).inc();
        }
    }
}
