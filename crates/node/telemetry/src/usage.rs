//! Metrics of tenants.

use std::collections::BTreeMap;
use std::sync::atomic::AtomicU64;

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use spillway_types::Outcome;
use spillway_usage::{OTHER, UsageLines, Used};

use crate::catalog::{limits, requests};
use crate::register::{Labels, metric, raise, registered};

/// Most tenants that metrics distinguish.
const TENANTS_MAX: usize = 256;

/// Share of a tenant's budget that is spent.
#[derive(Clone, Debug)]
pub struct LiveBudget {
    /// The tenant.
    pub tenant: String,
    /// Time for which the budget is: `day` or `month`.
    pub period: &'static str,
    /// Share of it that is spent; 1 is all.
    pub used: f64,
}

registered! {
    /// Metrics with the label tenant.
    #[derive(Debug)]
    pub(crate) struct UsageMetrics {
        tokens: Family<Labels, Counter<u64, AtomicU64>> = metric(requests::TENANT_TOKENS),
        estimates: Family<Labels, Counter> = metric(requests::USAGE_ESTIMATES),
        requests: Family<Labels, Counter<u64, AtomicU64>> = metric(requests::TENANT_REQUESTS),
        cost: Family<Labels, Counter<f64, AtomicU64>> = metric(requests::TENANT_COST),
        budgets: Family<Labels, Gauge<f64, AtomicU64>> = metric(limits::TENANT_BUDGET_USED),
    }
}

impl UsageMetrics {
    /// Counts an estimate of a request's tokens, if there is one. A guest is billed at its own node.
    pub(crate) fn record(&self, outcome: &Outcome) {
        if let Some(estimate) = outcome.estimate.filter(|_| !outcome.is_guest) {
            let labels = vec![("reason", estimate.reason.name().to_owned())];
            self.estimates.get_or_create(&labels).inc();
        }
    }

    /// Shows the budgets in `live`; all others vanish.
    pub(crate) fn show_budgets(&self, live: &[LiveBudget]) {
        // Cleared first, so that removed budgets vanish.
        self.budgets.clear();
        for budget in live {
            let labels =
                vec![("tenant", budget.tenant.clone()), ("period", budget.period.to_owned())];
            self.budgets.get_or_create(&labels).set(budget.used);
        }
    }

    pub(crate) fn show(&self, usage: &UsageLines) {
        for (tenant, sum) in by_tenant(usage) {
            let kinds = [
                ("prompt", sum.prompt),
                ("completion", sum.completion),
                ("cached", sum.cached),
                ("estimated", sum.estimated),
            ];
            // Tenants whose replies report no such tokens get no series of zeros.
            for (kind, sum) in kinds.into_iter().filter(|(_, sum)| *sum > 0) {
                let labels = vec![("tenant", tenant.to_owned()), ("kind", kind.to_owned())];
                raise(&self.tokens.get_or_create(&labels), sum);
            }
            let results = [("ok", sum.requests - sum.errors), ("error", sum.errors)];
            for (result, count) in results.into_iter().filter(|(_, count)| *count > 0) {
                let labels = vec![("tenant", tenant.to_owned()), ("result", result.to_owned())];
                raise(&self.requests.get_or_create(&labels), count);
            }
            if !sum.cost.is_zero() {
                let counter = self.cost.get_or_create(&vec![("tenant", tenant.to_owned())]);
                // Only what is shown is rounded: the sum is exact.
                counter.inc_by((sum.cost.to_f64() - counter.get()).max(0.0));
            }
        }
    }
}

/// Returns sums by tenant. Requests without a tenant are left out.
fn by_tenant(usage: &UsageLines) -> BTreeMap<&str, Used> {
    let mut tenants: BTreeMap<&str, Used> = BTreeMap::new();
    for ((tenant, ..), used) in usage.iter() {
        let Some(tenant) = tenant else { continue };
        // The first tenants by name keep a label of their own.
        let is_beyond = tenants.len() >= TENANTS_MAX && !tenants.contains_key(tenant.as_str());
        let name = if is_beyond { OTHER } else { tenant.as_str() };
        tenants.entry(name).or_default().add(used);
    }
    tenants
}
