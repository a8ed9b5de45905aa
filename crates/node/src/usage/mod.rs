//! What clients used: counted on this node, and asked of all nodes together.

mod asking;
mod budgets;
mod sharing;
#[cfg(test)]
mod usage_test;

use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use arc_swap::ArcSwap;
use spillway_admin::{AskedNode, ClusterUsage};
use spillway_config::UsageConfig;
use spillway_request::gateway::Gateway;
use spillway_telemetry::LiveBudget;
use spillway_types::{NodeName, Outcome, TenantName, unix_ms};
use spillway_usage::{Budget, Day, Money, PriceList, UsageQuery, UsageTable};
use spillway_usage_store::{StoreConfig, UsageStore};
use tokio_util::sync::CancellationToken;

use self::asking::ask_nodes;
pub(crate) use self::asking::{PATH, reply};
use self::budgets::Budgets;
pub(crate) use self::sharing::{SPENDING_PATH, share, spending_reply};
use crate::feedback::Feedback;

/// Period of writing usage down: a process that crashes loses what it counted since.
const PACE: Duration = Duration::from_secs(5);

/// Usage of this node's own clients, the prices by which requests cost, and budgets.
#[derive(Debug)]
pub(crate) struct Usage {
    store: UsageStore,
    prices: ArcSwap<PriceList>,
    budgets: Budgets,
}

/// Parts of a node that usage is counted with.
#[derive(Debug)]
pub(crate) struct UsageParts {
    /// Name of the node.
    pub(crate) node: NodeName,
    /// Number of the process, which no process of the node had before.
    pub(crate) process: u64,
    /// Refuses tenants whose budgets are spent.
    pub(crate) gateway: Arc<Gateway>,
    pub(crate) config: UsageConfig,
    /// Data folder of the cluster.
    pub(crate) data: Option<PathBuf>,
    pub(crate) prices: PriceList,
    pub(crate) budgets: BTreeMap<TenantName, Budget>,
}

impl Usage {
    /// Opens what is kept in a folder of its own, else in that of the cluster. Budgets hold at once,
    /// with what was spent before.
    ///
    /// # Errors
    /// Returns an error if the folder can't be made.
    pub(crate) fn open(parts: UsageParts, now: SystemTime) -> io::Result<Self> {
        let folder = parts.config.folder.or(parts.data);
        let days_max = parts.config.days_max;
        let usage = Self {
            store: UsageStore::open(StoreConfig { folder, days_max })?,
            prices: ArcSwap::from_pointee(parts.prices),
            budgets: Budgets::new(parts.node, parts.process, parts.gateway),
        };
        usage.set_budgets(parts.budgets, now);
        Ok(usage)
    }

    /// Takes other budgets into use.
    pub(crate) fn set_budgets(&self, budgets: BTreeMap<TenantName, Budget>, now: SystemTime) {
        self.budgets.set(budgets, &self.store, day_of(now));
        self.judge(now);
    }

    /// Returns the shares of budgets that are spent, for metrics.
    pub(crate) fn live_budgets(&self, now: SystemTime) -> Vec<LiveBudget> {
        self.budgets.live(day_of(now))
    }

    /// Has the tenants refused whose budgets are spent now.
    pub(crate) fn judge(&self, now: SystemTime) {
        self.budgets.judge(day_of(now));
    }

    /// Takes other prices into use, for requests that end from now on.
    pub(crate) fn set_prices(&self, prices: PriceList) {
        self.prices.store(Arc::new(prices));
    }

    /// Counts a request that ended at `at`. Returns its cost.
    pub(crate) fn record(&self, outcome: &Outcome, at: SystemTime) -> Money {
        let cost = self.prices.load().cost(outcome);
        let store = || self.store.record(outcome, cost, at);
        self.budgets.record(outcome, cost, day_of(at), store);
        cost
    }

    /// Writes what has changed. Blocks.
    pub(crate) fn save(&self, now: SystemTime) {
        self.store.save(now);
        self.budgets.save(&self.store);
    }

    fn read(&self, query: &UsageQuery) -> UsageTable {
        self.store.read(query)
    }
}

fn day_of(at: SystemTime) -> Day {
    Day::of_ms(unix_ms(at))
}

/// Writes usage down every few seconds, until told to stop.
pub(crate) async fn keep(feedback: Arc<Feedback>, stop: CancellationToken) {
    let mut interval = tokio::time::interval(PACE);
    while stop.run_until_cancelled(interval.tick()).await.is_some() {
        let feedback = Arc::clone(&feedback);
        // A task that panics has told so itself.
        drop(tokio::task::spawn_blocking(move || feedback.usage.save(SystemTime::now())).await);
    }
}

/// Answers a question about the usage of this node, with every outcome up to now.
pub(crate) async fn of_node(feedback: Arc<Feedback>, query: UsageQuery) -> UsageTable {
    // Reading days that are over takes files.
    let reading = tokio::task::spawn_blocking(move || {
        feedback.collect();
        feedback.usage.read(&query)
    });
    reading.await.unwrap_or_default()
}

/// Answers a question about the usage of all nodes. Each is asked for its own clients alone, so
/// that no request counts twice.
pub(crate) async fn of_cluster(
    feedback: &Arc<Feedback>,
    node: &str,
    query: &UsageQuery,
) -> ClusterUsage {
    let region = feedback.gateway.config().region.clone();
    let own = of_node(Arc::clone(feedback), query.clone());
    let asked = async {
        match feedback.link() {
            Some(link) => ask_nodes(&link, query).await,
            None => Vec::new(),
        }
    };
    let (mut table, answers) = tokio::join!(own, asked);
    let mut nodes = vec![AskedNode { name: node.to_owned(), region, fault: None }];
    for answer in answers {
        let fault = match answer.rows {
            Ok(rows) => {
                rows.into_iter().for_each(|row| table.add_row(row));
                None
            }
            Err(fault) => Some(fault.to_owned()),
        };
        nodes.push(AskedNode { name: answer.name, region: answer.region, fault });
    }
    let budgets = feedback.usage.budgets.states(day_of(SystemTime::now()));
    ClusterUsage { budgets, ..ClusterUsage::new(query, nodes, table) }
}
