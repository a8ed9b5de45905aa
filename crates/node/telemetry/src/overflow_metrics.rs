//! Metrics of overflow replicas.

use std::sync::atomic::AtomicU64;

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use spillway_types::Outcome;
use spillway_usage::Money;

use crate::catalog::replicas;
use crate::register::{Labels, metric, raise, registered};

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

registered! {
    #[derive(Debug)]
    pub(crate) struct OverflowMetrics {
        requests: Family<Labels, Counter> = metric(replicas::OVERFLOW_REQUESTS),
        tokens: Family<Labels, Counter> = metric(replicas::OVERFLOW_TOKENS),
        cost: Family<Labels, Counter<f64, AtomicU64>> = metric(replicas::OVERFLOW_COST),
        capped: Family<Labels, Counter> = metric(replicas::OVERFLOW_CAPPED),
        budgets: Family<Labels, Gauge<f64, AtomicU64>> = metric(replicas::OVERFLOW_BUDGET_USED),
    }
}

impl OverflowMetrics {
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
