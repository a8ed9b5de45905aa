//! Metrics of tenants.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::AtomicU64;
use std::sync::{Mutex, PoisonError};

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use spillway_types::{Outcome, TenantName};
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
        /// Tenants that have a label of their own: the first [`TENANTS_MAX`] that came, for good. A
        /// tenant that lost its label to another would count twice, as itself and as one of the rest.
        named: Mutex<BTreeSet<TenantName>>,
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
        let mut named = self.named.lock().unwrap_or_else(PoisonError::into_inner);
        for (tenant, sum) in by_tenant(usage, &mut named) {
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

/// Returns sums by tenant, and names tenants while there is room. Requests without a tenant are left
/// out.
fn by_tenant<'u>(
    usage: &'u UsageLines,
    named: &mut BTreeSet<TenantName>,
) -> BTreeMap<&'u str, Used> {
    let mut tenants: BTreeMap<&str, Used> = BTreeMap::new();
    for ((tenant, ..), used) in usage.iter() {
        let Some(tenant) = tenant else { continue };
        if named.len() < TENANTS_MAX && !named.contains(tenant) {
            named.insert(tenant.clone());
        }
        let name = if named.contains(tenant) { tenant.as_str() } else { OTHER };
        tenants.entry(name).or_default().add(used);
    }
    tenants
}
