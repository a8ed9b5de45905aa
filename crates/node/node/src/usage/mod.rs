//! Usage of clients: counted on this node, and asked of all nodes together.

mod agreed;
mod budgets;
mod sharing;
#[cfg(test)]
mod usage_test;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use arc_swap::ArcSwap;
use spillway_admin::BudgetState;
use spillway_cluster_state::State;
use spillway_config::OverflowTerms;
use spillway_control_plane::ControlPlane;
use spillway_telemetry::{LiveBudget, LiveOverflow};
use spillway_types::{Outcome, ReplicaName, TenantName, unix_ms};
use spillway_usage::{Budget, Day, Money, PriceList, UsageQuery, UsageTable};
use spillway_usage_store::{StoreConfig, UsageStore};
use spillway_view::{Replica, overflow_account};
use tokio_util::sync::CancellationToken;

use self::agreed::Bills;
pub(crate) use self::budgets::Budgets;
pub(crate) use self::sharing::{SPENDING_PATH, share, spending_reply};

/// Period of writing usage down: a process that crashes loses what it counted since.
const PACE: Duration = Duration::from_secs(5);

/// Usage of this node's own clients, the prices by which requests cost, and budgets.
#[derive(Debug)]
pub(crate) struct Usage {
    store: UsageStore,
    prices: ArcSwap<PriceList>,
    /// Prices and budgets of overflow replicas.
    overflow: ArcSwap<OverflowList>,
    budgets: Budgets,
    /// Budgets and prices by their sources. Locked when a config or the agreed state changes.
    sources: Mutex<UsageSources>,
}

/// Budgets and prices of config and cluster.
#[derive(Debug, Default)]
struct UsageSources {
    config: Bills,
    overflow: OverflowList,
    agreed: Bills,
}

/// Prices and budgets of overflow replicas.
pub(crate) type OverflowList = BTreeMap<ReplicaName, OverflowTerms>;

/// Cost of a request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RequestCost {
    /// Cost for the client, by the prices of models.
    pub(crate) client: Money,
    /// Cost for the operator, if an overflow replica was asked.
    pub(crate) overflow: Option<Money>,
}

impl Usage {
    /// Opens the usage that is kept in a folder, without prices and budgets.
    pub(crate) fn open(store: StoreConfig, budgets: Budgets) -> Self {
        Self {
            store: UsageStore::open(store),
            prices: ArcSwap::default(),
            overflow: ArcSwap::default(),
            budgets,
            sources: Mutex::default(),
        }
    }

    /// Takes other budgets of the config into use, of tenants and of overflow replicas.
    pub(crate) fn set_budgets(
        &self,
        budgets: BTreeMap<TenantName, Budget>,
        overflow: OverflowList,
        now: SystemTime,
    ) {
        let mut sources = self.sources.lock().unwrap_or_else(PoisonError::into_inner);
        (sources.config.budgets, sources.overflow) = (budgets, overflow);
        self.use_budgets(&sources, now);
    }

    /// Takes what the cluster says of budgets and prices into use.
    pub(crate) fn take_state(&self, state: &State, now: SystemTime) {
        let agreed = Bills::of(state);
        let mut sources = self.sources.lock().unwrap_or_else(PoisonError::into_inner);
        // Most entries are about something else.
        if sources.agreed == agreed {
            return;
        }
        sources.agreed = agreed;
        self.use_prices(&sources);
        self.use_budgets(&sources, now);
    }

    fn use_prices(&self, sources: &UsageSources) {
        self.prices.store(Arc::new(sources.config.and(&sources.agreed).prices));
    }

    fn use_budgets(&self, sources: &UsageSources, now: SystemTime) {
        let mut budgets = sources.config.and(&sources.agreed).budgets;
        let overflow = sources.overflow.clone();
        // Money for a replica is counted like a tenant's: at all nodes, and through restarts.
        // Without a budget, too: one that is set later counts what was spent before.
        let accounts = overflow.iter();
        budgets.extend(accounts.map(|(replica, terms)| (overflow_account(replica), terms.budget)));
        self.overflow.store(Arc::new(overflow));
        self.budgets.set(budgets, &self.store, day_of(now));
        self.judge(now);
    }

    /// Returns the shares of budgets that are spent, for metrics.
    pub(crate) fn live_budgets(&self, now: SystemTime) -> Vec<LiveBudget> {
        self.budgets.live(day_of(now))
    }

    /// Returns the state of the caps of these replicas, as far as they are overflow replicas.
    pub(crate) fn live_overflow(
        &self,
        replicas: &[Arc<Replica>],
        now: SystemTime,
    ) -> Vec<LiveOverflow> {
        let live = |replica: &Arc<Replica>| {
            let name = &replica.spec().name;
            let kept = replica.overflow()?.kept().map(|(cap, count)| (cap.name(), count));
            Some(LiveOverflow {
                replica: name.to_string(),
                kept: kept.into(),
                budgets: self.budgets.used(&overflow_account(name), day_of(now)),
            })
        };
        replicas.iter().filter_map(live).collect()
    }

    /// Has the tenants refused whose budgets are spent now.
    pub(crate) fn judge(&self, now: SystemTime) {
        self.budgets.judge(day_of(now));
    }

    /// Takes other prices of the config into use, for requests that end from now on.
    pub(crate) fn set_prices(&self, prices: PriceList) {
        let mut sources = self.sources.lock().unwrap_or_else(PoisonError::into_inner);
        sources.config.prices = prices;
        self.use_prices(&sources);
    }

    /// Counts a request that ended at `at`. Returns its cost.
    pub(crate) fn record(&self, outcome: &Outcome, at: SystemTime) -> RequestCost {
        let client = self.prices.load().cost(outcome);
        let store = || self.store.record(outcome, client, at);
        self.budgets.record(outcome, client, day_of(at), store);
        let overflow = outcome.overflow.and(outcome.replica.as_ref()).and_then(|replica| {
            let cost = self.overflow.load().get(replica)?.price.cost(outcome.tokens);
            self.budgets.spend(&overflow_account(replica), cost, day_of(at));
            Some(cost)
        });
        RequestCost { client, overflow }
    }

    /// Writes what has changed. Blocks.
    pub(crate) fn save(&self, now: SystemTime) {
        self.store.save(now);
        self.budgets.save(&self.store);
    }

    /// Returns the error with which the newest usage could not be written; `None` if it was.
    pub(crate) fn fault(&self) -> Option<String> {
        self.store.fault()
    }

    /// Returns the usage that a query asks for. Reads files of days that are over.
    pub(crate) fn read(&self, query: &UsageQuery) -> UsageTable {
        self.store.read(query)
    }

    /// Returns the budgets of tenants, and what is known of their spending.
    pub(crate) fn budget_states(&self, now: SystemTime) -> Vec<BudgetState> {
        self.budgets.states(day_of(now))
    }
}

fn day_of(at: SystemTime) -> Day {
    Day::of_ms(unix_ms(at))
}

/// Writes usage down every few seconds, until told to stop.
pub(crate) async fn keep(usage: Arc<Usage>, stop: CancellationToken) {
    let mut interval = tokio::time::interval(PACE);
    while stop.run_until_cancelled(interval.tick()).await.is_some() {
        let usage = Arc::clone(&usage);
        // A panic of the task has been logged already.
        drop(tokio::task::spawn_blocking(move || usage.save(SystemTime::now())).await);
    }
}

/// Follows the agreed state until it is published no more.
pub(crate) async fn follow(usage: Arc<Usage>, control_plane: Arc<ControlPlane>) {
    let mut publications = control_plane.publications();
    loop {
        // Marked before the state is read, so that one published in between is not missed.
        publications.mark_unchanged();
        usage.take_state(&control_plane.published(), SystemTime::now());
        if publications.changed().await.is_err() {
            return;
        }
    }
}
