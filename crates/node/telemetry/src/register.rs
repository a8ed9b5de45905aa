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

#[cfg(test)]
mod tests {
    use super::*;

    fn value(family: &Family<Labels, Counter>, label: &'static str, value: &str) -> u64 {
        family.get_or_create(&vec![(label, value.to_owned())]).get()
    }

    #[test]
    fn a_counter_follows_a_total_up_and_never_down() {
        let counter = Counter::default();
        for (total, expected) in
            [(3, 3), (3, 3), (7, 7), (0, 7), (6, 7), (8, 8), (u64::MAX, u64::MAX)]
        {
            raise(&counter, total);
            assert_eq!(counter.get(), expected, "after {total}");
        }
    }

    #[test]
    fn each_label_follows_its_own_total() {
        let family = Family::default();
        raise_each(&family, "reason", &[("a", 2), ("b", 5)]);
        raise_each(&family, "reason", &[("b", 6), ("c", 1)]);
        assert_eq!(["a", "b", "c"].map(|reason| value(&family, "reason", reason)), [2, 6, 1]);
    }

    #[test]
    fn a_family_from_zero_keeps_what_it_has_counted() {
        let family = from_zero(Family::default(), "result", ["applied", "refused"]);
        family.get_or_create(&vec![("result", "applied".to_owned())]).inc();
        let again = from_zero(family, "result", ["applied"]);
        assert_eq!(["applied", "refused"].map(|result| value(&again, "result", result)), [1, 0]);
    }

    #[test]
    fn the_largest_values_stay_positive_in_a_gauge() {
        for (value, expected) in
            [(0, 0), (5, 5), (i64::MAX as u64, i64::MAX), (1 << 63, i64::MAX), (u64::MAX, i64::MAX)]
        {
            assert_eq!(signed(value), expected);
        }
    }
}
