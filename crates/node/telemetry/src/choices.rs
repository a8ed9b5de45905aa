//! Metrics of fallbacks to another model.

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use spillway_types::{ModelName, Outcome};

use crate::catalog::requests;
use crate::register::{Labels, metric, registered};

registered! {
    /// Counters of fallbacks.
    #[derive(Debug)]
    pub(crate) struct ChoiceMetrics {
        fallbacks: Family<Labels, Counter> = metric(requests::FALLBACKS),
    }
}

impl ChoiceMetrics {
    pub(crate) fn record(&self, outcome: &Outcome) {
        let Some(model) = &outcome.fallback_for else { return };
        let served = outcome.model.as_ref().map(ModelName::to_string).unwrap_or_default();
        let labels = vec![("model", model.to_string()), ("served", served)];
        self.fallbacks.get_or_create(&labels).inc();
    }
}
