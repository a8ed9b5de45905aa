//! Metrics of overflow replicas.

use std::sync::atomic::AtomicU64;

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;
use spillway_types::Outcome;
use spillway_usage::Money;

use crate::catalog;
use crate::register::{Labels, metric, raise};

/// State of an overflow replica's caps.
#[derive(Clone, Debug)]
pub struct LiveOverflow {
    /// Name of the replica.
    pub replica: String,
    /// Requests that caps have kept from it since the start, by cap.
    pub kept: Vec<(&'static str, u64)>,
    /// Share of each budget that is spent, by period; 1 is all.
    pub budgets: Vec<(&'static str, f64)>,
}

#[derive(Debug)]
pub(crate) struct OverflowMetrics {
    requests: Family<Labels, Counter>,
    tokens: Family<Labels, Counter>,
    cost: Family<Labels, Counter<f64, AtomicU64>>,
    capped: Family<Labels, Counter>,
    budgets: Family<Labels, Gauge<f64, AtomicU64>>,
}

impl OverflowMetrics {
    pub(crate) fn new(registry: &mut Registry) -> Self {
        Self {
            requests: metric(registry, &catalog::replicas::OVERFLOW_REQUESTS),
            tokens: metric(registry, &catalog::replicas::OVERFLOW_TOKENS),
            cost: metric(registry, &catalog::replicas::OVERFLOW_COST),
            capped: metric(registry, &catalog::replicas::OVERFLOW_CAPPED),
            budgets: metric(registry, &catalog::replicas::OVERFLOW_BUDGET_USED),
        }
    }

    /// Counts a request for which an overflow replica was asked, with its cost for the operator.
    pub(crate) fn record(&self, outcome: &Outcome, cost: Money) {
        let (Some(replica), Some(reason)) = (&outcome.replica, outcome.overflow) else { return };
        let replica = || ("replica", replica.to_string());
        let result = if (200..300).contains(&outcome.status) { "served" } else { "failed" };
        let labels = vec![replica(), ("reason", reason.to_owned()), ("result", result.to_owned())];
        self.requests.get_or_create(&labels).inc();
        let tokens = outcome.tokens;
        let kinds = [
            ("prompt", tokens.prompt),
            ("completion", tokens.completion),
            ("cached", tokens.cached),
        ];
        for (kind, count) in kinds.into_iter().filter(|(_, count)| *count > 0) {
            let labels = vec![replica(), ("kind", kind.to_owned())];
            self.tokens.get_or_create(&labels).inc_by(count);
        }
        self.cost.get_or_create(&vec![replica()]).inc_by(cost.to_f64());
    }

    /// Shows the caps of `live`; budgets of others vanish.
    pub(crate) fn show(&self, live: &[LiveOverflow]) {
        self.budgets.clear();
        for LiveOverflow { replica, kept, budgets } in live {
            let labels =
                |name, value: &str| vec![("replica", replica.clone()), (name, value.to_owned())];
            for (cap, count) in kept {
                raise(&self.capped.get_or_create(&labels("cap", cap)), *count);
            }
            for (period, used) in budgets {
                self.budgets.get_or_create(&labels("period", period)).set(*used);
            }
        }
    }
}
