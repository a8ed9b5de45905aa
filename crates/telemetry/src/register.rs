//! Parts that every group of metrics is made of: labels, registration, values.

use prometheus_client::metrics::counter::Counter;
use prometheus_client::registry::{Metric, Registry};

use crate::catalog::MetricSpec;

/// Label pairs. The config, never a client, bounds the number of distinct values.
pub(crate) type Labels = Vec<(&'static str, String)>;

/// Registers a metric and returns it.
pub(crate) fn metric<M: Metric + Clone + Default>(registry: &mut Registry, spec: &MetricSpec) -> M {
    let metric = M::default();
    registry.register(spec.name, spec.help(), metric.clone());
    metric
}

/// Raises a counter to a total that is counted elsewhere.
pub(crate) fn raise(counter: &Counter, total: u64) {
    // A counter never falls, even if the total begins again at 0.
    counter.inc_by(total.saturating_sub(counter.get()));
}

/// Converts a value for a gauge; the largest values become [`i64::MAX`].
pub(crate) fn signed(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}
