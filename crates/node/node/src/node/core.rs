//! The core of a node: all that serves clients without other nodes.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Instant, SystemTime};

use spillway_config::{ClusterConfig, Config};
use spillway_dns::Locate;
use spillway_knowledge::KnowledgeTask;
use spillway_prefix::{PrefixConfig, PrefixHasher};
use spillway_proxy::Worker;
use spillway_request::gateway::{ClientState, Gateway, GatewayConfig};
use spillway_resolver::Resolver;
use spillway_telemetry::Metrics;
use spillway_traces::{Origin, Traces};
use spillway_types::unix_ms;
use spillway_usage_store::StoreConfig;
use spillway_view::View;

use super::start_error::StartError;
use crate::access::KeyBook;
use crate::certificates::Certificates;
use crate::cluster::prefix_key;
use crate::data_path::DataPath;
use crate::health_watch::NodeHealth;
use crate::node_tasks::NodeTasks;
use crate::outcomes::Outcomes;
use crate::requests::RequestLog;
use crate::rollouts::RolloutCounts;
use crate::usage::{Budgets, Usage};

/// Data path of a node, what counts its outcomes, and who may use it. It knows no other node.
#[derive(Debug)]
pub(super) struct NodeCore {
    /// Tasks beside the data path.
    pub(super) tasks: NodeTasks,
    pub(super) resolver: Resolver,
    pub(super) data_path: DataPath,
    pub(super) outcomes: Arc<Outcomes>,
    pub(super) keys: Arc<KeyBook>,
    pub(super) certificates: Arc<Certificates>,
}

impl NodeCore {
    /// Builds the core, without replicas so far. Replicas may not have the address `own`, that of
    /// the admin listener. Also returns the task that learns from requests.
    ///
    /// # Errors
    /// Returns an error if prompts can't be hashed, or if there is no randomness.
    pub(super) fn new(
        config: &Config,
        own: Option<SocketAddr>,
    ) -> Result<(Self, KnowledgeTask), StartError> {
        let tasks = NodeTasks::new();
        let resolver = Resolver::start(config.system_files.clone(), &tasks.tracker, &tasks.stop);
        // It trusts callers on this machine, and a registered replica may have any address.
        resolver.forbid(own.into_iter().collect());
        let hasher = hasher(config.cluster.as_ref(), config.knowledge.prefix)?;
        let gateway = new_gateway(config.gateway.clone(), hasher)?;
        let clients = &gateway.clients;
        clients.quotas.set_own(&config.limits);
        clients.replace_cors(config.world.cors.clone());
        let keys = KeyBook::new(clients, &gateway.switches, config.access.clone());
        let workers = make_workers(config, &gateway);
        let (learning, knowledge) = KnowledgeTask::new(config.knowledge, &gateway, &workers);
        let usage = open_usage(config, clients)?;
        let outcomes = count_outcomes(config, &workers, usage, &resolver);
        outcomes.set_traces(config.traces.as_deref(), &gateway.switches);
        let core = Self {
            tasks,
            resolver,
            data_path: DataPath { gateway, workers, knowledge },
            outcomes: Arc::new(outcomes),
            keys: Arc::new(keys),
            certificates: Arc::default(),
        };
        Ok((core, learning))
    }

    /// Returns a function that locates clients by the databases in use at that moment.
    pub(super) fn locate(&self) -> Locate {
        let routing = Arc::clone(&self.data_path.gateway.routing);
        Arc::new(move |address| {
            let locations = routing.locations();
            locations.locator.as_ref().map(|locator| locator.locate(address)).unwrap_or_default()
        })
    }
}

fn new_gateway(config: GatewayConfig, hasher: PrefixHasher) -> Result<Arc<Gateway>, StartError> {
    let config = GatewayConfig { seed: getrandom::u64()?, ..config };
    let started_s = unix_ms(SystemTime::now()) / 1_000;
    Ok(Arc::new(Gateway::new(config, hasher, View::empty(), started_s)))
}

/// Returns the serving units of the config. In a cluster one more serves requests that other nodes
/// forward.
fn make_workers(config: &Config, gateway: &Arc<Gateway>) -> Vec<Arc<Worker>> {
    let units = config.workers;
    let count = units + usize::from(config.cluster.is_some());
    (0..count).map(|id| Arc::new(Worker::new(id, Arc::clone(gateway)))).collect()
}

/// Opens the usage of clients, in a folder of its own or else in that of the cluster. Budgets hold
/// at once, with what was spent before.
fn open_usage(config: &Config, clients: &Arc<ClientState>) -> Result<Usage, StartError> {
    let data = config.cluster.as_ref().and_then(|cluster| cluster.data.clone());
    let folder = config.usage.folder.clone().or(data);
    let store = StoreConfig { folder, days_max: config.usage.days_max };
    let (node, process) = (config.node.as_str().into(), getrandom::u64()?);
    let usage = Usage::open(store, Budgets::new(node, process, Arc::clone(clients)));
    usage.set_prices(config.prices.clone());
    let (budgets, overflow) = (config.access.budgets.clone(), config.world.overflow());
    usage.set_budgets(budgets, overflow, SystemTime::now());
    Ok(usage)
}

fn count_outcomes(
    config: &Config,
    workers: &[Arc<Worker>],
    usage: Usage,
    resolver: &Resolver,
) -> Outcomes {
    let (node, region) = (&config.node, &config.gateway.region);
    let requests = RequestLog::new(node, region);
    requests.set_access_log(&config.access_log);
    let origin = Origin { node: node.as_str().into(), region: region.as_str().into() };
    // Constant labels of this process.
    let facts = [("version", &config.version), ("node", node), ("region", region)];
    let facts = facts.map(|(name, value)| (name.to_owned(), value.to_owned()));
    Outcomes {
        workers: workers.to_vec(),
        metrics: Arc::new(Metrics::new(facts.into())),
        requests,
        traces: Traces::new(origin, resolver.clone()),
        usage: Arc::new(usage),
        health: Arc::new(NodeHealth::new(Instant::now())),
        rollouts: Arc::new(RolloutCounts::new()),
    }
}

/// Returns a hasher with the cluster's key, so that nodes agree on prompts and on where a request's
/// key belongs. A node without a cluster draws a key: nothing outside it needs its hashes.
fn hasher(
    cluster: Option<&ClusterConfig>,
    prefix: PrefixConfig,
) -> Result<PrefixHasher, StartError> {
    if let Some(cluster) = cluster {
        return Ok(PrefixHasher::new(prefix_key(cluster)?, prefix)?);
    }
    let mut key = [0; 4];
    for part in &mut key {
        *part = getrandom::u64()?;
    }
    Ok(PrefixHasher::new(key, prefix)?)
}
