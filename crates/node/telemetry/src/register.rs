//! Parts that every group of metrics is made of: labels, registration, values.

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::registry::{Metric, Registry};

use crate::catalog::MetricSpec;

/// Label pairs. The config, never a client, bounds the number of distinct values.
pub(crate) type Labels = Vec<(&'static str, String)>;

/// Declares a group of metrics, which registers them in their order when it is made. A line has the
/// field, its type, and the constructor with the metric of the catalog. A field without them begins
/// with its default.
macro_rules! registered {
    (
        $(#[$about:meta])*
        $visible:vis struct $group:ident {
            $(
                $(#[$doc:meta])*
                $field:ident: $type:ty $(= $($make:ident)::+($($spec:path)?))?,
            )+
        }
    ) => {
        $(#[$about])*
        $visible struct $group {
            $($(#[$doc])* $field: $type,)+
        }

        impl $group {
            pub(crate) fn new(registry: &mut prometheus_client::registry::Registry) -> Self {
                Self {
                    $($field: $crate::register::registered!(
                        @value registry $(, $($make)::+ $(, $spec)?)?
                    ),)+
                }
            }
        }
    };
    (@value $registry:ident) => { Default::default() };
    (@value $registry:ident, $($make:ident)::+) => { $($make)::+($registry) };
    (@value $registry:ident, $($make:ident)::+, $spec:path) => { $($make)::+($registry, &$spec) };
}

pub(crate) use registered;

/// Registers a metric and returns it.
pub(crate) fn metric<M: Metric + Clone + Default>(registry: &mut Registry, spec: &MetricSpec) -> M {
    let metric = M::default();
    registry.register(spec.name, spec.help(), metric.clone());
    metric
}

/// Returns a family whose counters with these labels start at 0. A counter that appears with its
/// first event has no increase that an alert could see.
pub(crate) fn from_zero<const N: usize>(
    family: Family<Labels, Counter>,
    label: &'static str,
    values: [&str; N],
) -> Family<Labels, Counter> {
    for value in values {
        drop(family.get_or_create(&vec![(label, value.to_owned())]));
    }
    family
}

/// Raises a counter to a total that is counted elsewhere.
pub(crate) fn raise(counter: &Counter, total: u64) {
    // A counter never falls, even if the total begins again at 0.
    counter.inc_by(total.saturating_sub(counter.get()));
}

/// Raises the counters of a family, distinguished by one label, to totals that are counted
/// elsewhere.
pub(crate) fn raise_each<'a>(
    family: &Family<Labels, Counter>,
    label: &'static str,
    totals: impl IntoIterator<Item = &'a (&'static str, u64)>,
) {
    for (value, total) in totals {
        raise(&family.get_or_create(&vec![(label, (*value).to_owned())]), *total);
    }
}

/// Converts a value for a gauge; the largest values become [`i64::MAX`].
pub(crate) fn signed(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}
