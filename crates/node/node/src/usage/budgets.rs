//! Budgets of tenants: their spending at all nodes, and the tenants that are refused for it.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde::{Deserialize, Serialize};
use spillway_admin::BudgetState;
use spillway_request::gateway::ClientState;
use spillway_telemetry::LiveBudget;
use spillway_types::{NodeName, Outcome, TenantName};
use spillway_usage::{
    Budget, Day, Money, NodeSpending, Spending, SpendingBook, UsageBy, UsageQuery,
};
use spillway_usage_store::UsageStore;
use spillway_view::replica_of_account;

/// Most tenants whose budgets metrics show.
const SHOWN_MAX: usize = 256;

/// Budgets of tenants, and what is known of their spending.
#[derive(Debug)]
pub(crate) struct Budgets {
    me: NodeName,
    /// Number of this process, by which others see that its changes are numbered from the start
    /// again.
    process: u64,
    clients: Arc<ClientState>,
    known: Mutex<KnownSpending>,
}

#[derive(Debug, Default)]
struct KnownSpending {
    budgets: BTreeMap<TenantName, Budget>,
    book: SpendingBook,
    /// Last change that each node has sent.
    marks: BTreeMap<NodeName, SpendingMark>,
    /// Number of the last change that was saved.
    saved: u64,
    /// Number of the last change that was judged, and the day; `None` if budgets changed since.
    judged: Option<(u64, Day)>,
}

/// Last change that a process has sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct SpendingMark {
    process: u64,
    change: u64,
}

/// Changes that a node sends.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct SpendingReport {
    upto: SpendingMark,
    rows: Vec<NodeSpending>,
}

#[cfg(test)]
impl SpendingReport {
    /// Returns the number of rows.
    pub(super) fn rows(&self) -> usize {
        self.rows.len()
    }
}

impl Budgets {
    pub(crate) fn new(me: NodeName, process: u64, clients: Arc<ClientState>) -> Self {
        Self { me, process, clients, known: Mutex::default() }
    }

    /// Replaces the budgets. This month's spending of a tenant is looked up where it is counted.
    pub(crate) fn set(
        &self,
        budgets: BTreeMap<TenantName, Budget>,
        store: &UsageStore,
        today: Day,
    ) {
        // Held while usage is read, so that no request is counted in between.
        let mut known = self.known();
        (known.budgets, known.judged) = (budgets, None);
        let KnownSpending { budgets, book, marks, .. } = &mut *known;
        book.retain(|tenant| budgets.contains_key(tenant));
        // Of tenants that are new here nodes are asked for all that they know.
        marks.clear();
        if budgets.is_empty() {
            return;
        }
        let own = self.own_spending(store, today);
        for report in own.into_iter().chain(store.spending()) {
            if budgets.contains_key(&report.tenant) {
                book.receive(&report);
            }
        }
    }

    /// Counts a request of this node's own clients. `store` counts it first, under the same lock.
    pub(crate) fn record(&self, outcome: &Outcome, cost: Money, day: Day, store: impl FnOnce()) {
        let mut known = self.known();
        store();
        let tenant = outcome.tenant.as_ref().filter(|_| !outcome.is_guest);
        if let Some(tenant) = tenant.filter(|tenant| known.budgets.contains_key(*tenant)) {
            known.book.spend(tenant, &self.me, day, cost);
        }
    }

    /// Counts money that this node spent on an account, if that has a budget.
    pub(crate) fn spend(&self, account: &TenantName, cost: Money, day: Day) {
        let mut known = self.known();
        if known.budgets.contains_key(account) {
            known.book.spend(account, &self.me, day, cost);
        }
    }

    /// Has the tenants refused whose budgets are spent.
    pub(crate) fn judge(&self, day: Day) {
        let mut known = self.known();
        let now = Some((known.book.changes(), day));
        if known.judged == now {
            return;
        }
        known.judged = now;
        let spent = known.budgets.iter().filter_map(|(tenant, budget)| {
            let spent = budget.spent(known.book.of_tenant(tenant, day), day)?;
            Some((tenant.clone(), spent))
        });
        self.clients.budgets.replace(spent.collect());
    }

    /// Returns true if no tenant has a budget.
    pub(crate) fn is_empty(&self) -> bool {
        self.known().budgets.is_empty()
    }

    /// Returns the changes since the place up to which another node has them, and the place that
    /// they reach.
    pub(crate) fn report_since(&self, heard: SpendingMark) -> SpendingReport {
        let since = if heard.process == self.process { heard.change } else { 0 };
        let (rows, change) = self.known().book.changed_since(since);
        SpendingReport { upto: SpendingMark { process: self.process, change }, rows }
    }

    /// Returns the place up to which a node has sent its changes.
    pub(crate) fn mark_of(&self, node: &NodeName) -> SpendingMark {
        self.known().marks.get(node).copied().unwrap_or_default()
    }

    /// Takes in changes that a node sent, unless it was asked before the budgets changed.
    pub(crate) fn receive(&self, node: &NodeName, asked: SpendingMark, report: &SpendingReport) {
        let mut known = self.known();
        if known.marks.get(node).copied().unwrap_or_default() != asked {
            return;
        }
        let KnownSpending { budgets, book, marks, .. } = &mut *known;
        let rows = report.rows.iter().filter(|row| budgets.contains_key(&row.tenant));
        rows.for_each(|row| book.receive(row));
        marks.insert(node.clone(), report.upto);
    }

    /// Writes down what is known of all nodes' spending, if it has changed.
    pub(crate) fn save(&self, store: &UsageStore) {
        let report = {
            let mut known = self.known();
            if known.book.changes() == known.saved {
                return;
            }
            let (report, change) = known.book.changed_since(0);
            known.saved = change;
            report
        };
        // The lock is free again: requests that end during the write are counted.
        store.save_spending(&report);
    }

    /// Returns all budgets of tenants with what is known to be spent of them.
    pub(crate) fn states(&self, day: Day) -> Vec<BudgetState> {
        let known = self.known();
        let state = |(tenant, budget): (&TenantName, &Budget)| {
            let spending = known.book.of_tenant(tenant, day);
            let text = |money: Money| money.to_string();
            BudgetState {
                tenant: tenant.to_string(),
                budget_per_day: budget.per_day.map(text),
                budget_per_month: budget.per_month.map(text),
                spent_today: text(spending.today),
                spent_this_month: text(spending.month),
                refused_until: budget.spent(spending, day).map(|spent| spent.until.to_string()),
            }
        };
        let tenants =
            known.budgets.iter().filter(|(tenant, _)| replica_of_account(tenant).is_none());
        tenants.map(state).collect()
    }

    /// Returns the shares of budgets that are spent.
    pub(crate) fn live(&self, day: Day) -> Vec<LiveBudget> {
        let known = self.known();
        let tenants =
            known.budgets.iter().filter(|(tenant, _)| replica_of_account(tenant).is_none());
        let shown = tenants.take(SHOWN_MAX).flat_map(|(tenant, budget)| {
            let used = used(*budget, known.book.of_tenant(tenant, day));
            used.map(|(period, used)| LiveBudget { tenant: tenant.to_string(), period, used })
        });
        shown.collect()
    }

    /// Returns the shares of an account's budget that are spent, by period.
    pub(crate) fn used(&self, account: &TenantName, day: Day) -> Vec<(&'static str, f64)> {
        let known = self.known();
        let Some(budget) = known.budgets.get(account) else { return Vec::new() };
        used(*budget, known.book.of_tenant(account, day)).collect()
    }

    /// Returns what this node's own clients spent this month.
    fn own_spending(&self, store: &UsageStore, today: Day) -> Vec<NodeSpending> {
        let by = vec![UsageBy::Day, UsageBy::Tenant];
        let query = UsageQuery { by, ..UsageQuery::of_days(today.month(), today) };
        let mut tenants: BTreeMap<TenantName, Spending> = BTreeMap::new();
        for row in store.read(&query).rows() {
            let (Some(day), Some(tenant)) = (row.day, row.tenant) else { continue };
            tenants.entry(tenant.into()).or_default().add(day, row.used.cost);
        }
        let report = |(tenant, spending)| NodeSpending { tenant, node: self.me.clone(), spending };
        tenants.into_iter().map(report).collect()
    }

    fn known(&self) -> MutexGuard<'_, KnownSpending> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns the shares of a budget that are spent, by period.
fn used(budget: Budget, spending: Spending) -> impl Iterator<Item = (&'static str, f64)> {
    let periods =
        [("day", budget.per_day, spending.today), ("month", budget.per_month, spending.month)];
    periods.into_iter().filter_map(|(period, budget, spent)| {
        // Of nothing, all is spent.
        let used = match budget? {
            Money::ZERO => 1.0,
            budget => spent.to_f64() / budget.to_f64(),
        };
        Some((period, used))
    })
}
