//! A running node: everything put together, and taken apart again without losing a request.

mod open;
mod stop;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, SystemTime};

use spillway_agreement::Agreement;
use spillway_consensus::{Consistency, Read};
use spillway_control::State;
use spillway_prefix::{PrefixConfig, PrefixConfigError, PrefixHasher};
use spillway_proxy::{Gateway, GatewayConfig, ReplicaTlsError, TlsError, View, Worker};
use spillway_telemetry::Metrics;
use spillway_types::RegionName;
use tokio::runtime::Handle;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use self::open::{no_cluster, open_admin, open_listeners, told, warn_of_clear_tokens};
pub use self::stop::Stopped;
use crate::access::KeyBook;
use crate::admin::{Admin, AdminSocket, serve_admin};
use crate::agreed::{Agreed, AgreedParts, Book, Said};
use crate::cluster::{Cluster, ClusterError, ClusterParts, prefix_key};
use crate::config::{AdminListener, AtStart, ClusterConfig, Config, SpillConfig};
use crate::explain::Explainer;
use crate::feedback::Feedback;
use crate::fold::AgreedWorld;
use crate::keeper::{Keeper, KeeperHandle, KeeperParts};
use crate::knowledge::{Knowledge, Task, Ties};
use crate::memory;
use crate::quota::{Division, DivisionParts, FileLimits, pay_own};
use crate::reload::{Reloader, RunningAdmin};
use crate::resolve::refresh_loop;
use crate::workers::{self, Bound, unit_count};

/// How long a look at what is on the own disk may take.
const RECALL_LIMIT: Duration = Duration::from_secs(1);

/// A node could not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// An address can't be listened on.
    #[error("can't listen on {address}: {cause}{}", told(holder.as_deref()))]
    Listen {
        /// The address.
        address: SocketAddr,
        /// Why not.
        cause: std::io::Error,
        /// Which process has it, if the address is taken and that can be found out.
        holder: Option<String>,
    },
    /// A listener's certificate does not work.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// A replica's TLS settings do not work.
    #[error(transparent)]
    ReplicaTls(#[from] ReplicaTlsError),
    /// The prompt hashing settings do not work.
    #[error(transparent)]
    Prefix(#[from] PrefixConfigError),
    /// Other nodes can't be talked to.
    #[error(transparent)]
    Cluster(#[from] ClusterError),
    /// What the cluster agreed on can't be kept.
    #[error("can't keep what the cluster agrees on: {0}")]
    Agreement(#[from] spillway_consensus::StartFault),
    /// The operating system has no randomness to give.
    #[error("no randomness: {0}")]
    Randomness(#[from] getrandom::Error),
    /// A thread can't be started.
    #[error("can't start a worker: {0}")]
    Thread(std::io::Error),
}

/// A node that serves.
#[derive(Debug)]
pub struct Node {
    addresses: Vec<SocketAddr>,
    admin_address: Option<SocketAddr>,
    gateway: Arc<Gateway>,
    feedback: Arc<Feedback>,
    threads: Vec<JoinHandle<()>>,
    /// Ends the worker threads, whatever is left on them.
    stop_workers: CancellationToken,
    /// Ends the tasks beside the data path.
    stop_tasks: CancellationToken,
    tasks: TaskTracker,
    keeper: KeeperHandle,
    keys: Arc<KeyBook>,
    /// The way to other nodes, if there are any.
    cluster: Option<Cluster>,
    /// This node's part in what the cluster agrees on.
    agreed: Option<Agreed>,
    /// This node's part in dividing limits.
    division: Option<Division>,
    /// How long it serves as ever after it was told to stop.
    drain_notice: Duration,
    drain: Duration,
}

impl Node {
    /// Starts a node. Its tasks beside the data path run on the caller's runtime; requests are
    /// served by threads of their own.
    ///
    /// # Errors
    /// If an address is taken or a certificate does not work; nothing is left running then.
    pub fn start(config: Config) -> impl Future<Output = Result<Self, StartError>> + Send {
        // Boxed, since a config makes it large.
        Box::pin(Self::started(config))
    }

    async fn started(config: Config) -> Result<Self, StartError> {
        let units = unit_count(config.worker_layout, config.workers);
        let mut bound = open_listeners(config.listeners).await?;
        let admin = open_admin(config.admin.as_ref()).await?;

        let hasher = hasher(config.cluster.as_ref(), config.knowledge.prefix)?;
        let gateway_config = GatewayConfig { seed: getrandom::u64()?, ..config.gateway };
        let facts = facts(&config.node, &gateway_config.region);
        let gateway =
            Arc::new(Gateway::new(gateway_config, hasher, View::empty(), epoch_seconds()));
        gateway.quotas().set_own(&config.limits);
        let keys = Arc::new(KeyBook::new(&gateway, config.access));
        // The last one serves what other nodes forward.
        let pools = units + usize::from(config.cluster.is_some());
        let workers = make_workers(&gateway, pools);
        let (mut learning, knowledge) = Task::new(config.knowledge, &gateway, &workers);
        let feedback = Arc::new(Feedback::new(&gateway, &workers, Metrics::new(facts), &knowledge));
        let (stop_tasks, tasks) = (CancellationToken::new(), TaskTracker::new());
        let keeper = Keeper::start(KeeperParts {
            gateway: Arc::clone(&gateway),
            feedback: Arc::clone(&feedback),
            knowledge: Arc::clone(&knowledge),
            world: config.world,
            units: pools,
            tasks: tasks.clone(),
            stop: stop_tasks.clone(),
        })
        .await?;
        let base = Base {
            node: &config.node,
            gateway: &gateway,
            worker: workers.last(),
            keeper: &keeper,
            knowledge: &knowledge,
            keys: &keys,
            feedback: &feedback,
            tasks: &tasks,
            stop: &stop_tasks,
        };
        // Boxed, since nearly nothing of the start is as large.
        let joining = Box::pin(base.join(config.cluster, config.spill, &mut learning));
        let (cluster, agreed, division) = joining.await?;
        keeper.started().await;
        let stop_workers = CancellationToken::new();
        let layout = (config.worker_layout, config.workers);
        let mut threads =
            workers::start(&workers[..units], &gateway, &mut bound, layout, &stop_workers)
                .map_err(StartError::Thread)?;
        threads.push(learning.start(stop_tasks.clone()).map_err(StartError::Thread)?);

        let node = Self {
            addresses: bound.iter().map(|bound| bound.address).collect(),
            admin_address: admin.as_ref().and_then(|admin| admin.socket.local_addr().ok()),
            gateway,
            feedback,
            threads,
            stop_workers,
            stop_tasks,
            tasks,
            keeper,
            keys,
            cluster,
            agreed,
            division,
            drain_notice: config.drain_notice,
            drain: config.drain,
        };
        if let (Some(_), Some(worker)) = (&node.cluster, workers.last()) {
            node.tasks.spawn(Arc::clone(worker).sweep_loop());
        }
        let file = config.path.map(|path| (path, config.text, config.at_start));
        node.start_tasks(admin.zip(config.admin), file, bound);
        Ok(node)
    }

    /// The addresses that clients can connect to, in the config's order.
    #[must_use]
    pub fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }

    /// The address of metrics and health.
    #[must_use]
    pub fn admin_address(&self) -> Option<SocketAddr> {
        self.admin_address
    }

    /// The UDP address for other nodes.
    #[must_use]
    pub fn link_address(&self) -> Option<SocketAddr> {
        self.cluster.as_ref()?.address()
    }

    /// What the cluster agrees on; `None` if this node takes no part in that.
    #[must_use]
    pub fn agreement(&self) -> Option<&Arc<Agreement>> {
        self.agreed.as_ref().map(Agreed::agreement)
    }

    /// The metrics as text.
    #[must_use]
    pub fn metrics(&self) -> String {
        self.feedback.scrape()
    }

    /// The state that requests share.
    #[must_use]
    pub fn gateway(&self) -> &Arc<Gateway> {
        &self.gateway
    }

    fn start_tasks(
        &self,
        admin: Option<(AdminSocket, AdminListener)>,
        file: Option<(PathBuf, String, AtStart)>,
        bound: Vec<Bound>,
    ) {
        let stop = || self.stop_tasks.clone();
        self.tasks.spawn(Arc::clone(&self.feedback).run(stop()));
        self.tasks.spawn(refresh_loop(Arc::clone(&self.gateway), stop()));
        self.tasks.spawn(memory::watch(Arc::clone(&self.gateway), stop()));
        let (paying, stopped) = (pay_own(Arc::clone(&self.gateway)), stop());
        self.tasks.spawn(async move { stopped.run_until_cancelled(paying).await });
        if let Some(agreement) = self.agreement() {
            let follow = Arc::clone(&self.keys).follow(Arc::clone(agreement));
            let stop = stop();
            self.tasks.spawn(async move { stop.run_until_cancelled(follow).await });
        }
        let running = admin.as_ref().map(|(socket, config)| {
            warn_of_clear_tokens(config);
            let api = spillway_admin::Admin::new(self.agreement().cloned(), config.api.clone());
            let api = api.limiting(Arc::new(FileLimits(Arc::clone(&self.gateway))));
            RunningAdmin { config: config.clone(), api, tls: socket.tls.clone() }
        });
        if let (Some((socket, _)), Some(running)) = (admin, &running) {
            let api = running.api.clone();
            let asked = self.feedback.workers.first().map(Arc::clone).map(Explainer);
            let api = match asked {
                Some(asked) => api.explaining(Arc::new(asked)),
                None => api,
            };
            let shown =
                Admin { feedback: Arc::clone(&self.feedback), keeper: self.keeper.clone(), api };
            self.tasks.spawn(serve_admin(socket, shown, stop(), self.tasks.clone()));
        }
        if let Some((path, text, at_start)) = file {
            let reloader = Reloader {
                path,
                text,
                at_start,
                keeper: self.keeper.clone(),
                keys: Arc::clone(&self.keys),
                admin: running,
                listeners: bound
                    .into_iter()
                    .map(|bound| (bound.configured, bound.listener))
                    .collect(),
                feedback: Arc::clone(&self.feedback),
                link: self.cluster.as_ref().map(|cluster| Arc::downgrade(cluster.link())),
            };
            self.tasks.spawn(reloader.run(stop()));
        }
    }
}

/// What metrics say of this process.
fn facts(node: &str, region: &str) -> Vec<(String, String)> {
    let facts = [("version", env!("CARGO_PKG_VERSION")), ("node", node), ("region", region)];
    facts.map(|(name, value)| (name.to_owned(), value.to_owned())).into()
}

/// What of a node stands before it joins others.
struct Base<'a> {
    node: &'a str,
    gateway: &'a Arc<Gateway>,
    /// Serves what other nodes forward.
    worker: Option<&'a Arc<Worker>>,
    keeper: &'a KeeperHandle,
    knowledge: &'a Arc<Knowledge>,
    keys: &'a KeyBook,
    feedback: &'a Feedback,
    tasks: &'a TaskTracker,
    stop: &'a CancellationToken,
}

impl Base<'_> {
    /// Becomes one of several nodes, and takes part in what they agree on, if the config says so.
    async fn join(
        &self,
        config: Option<ClusterConfig>,
        spill: SpillConfig,
        learning: &mut Task,
    ) -> Result<(Option<Cluster>, Option<Agreed>, Option<Division>), StartError> {
        let (Some(config), Some(worker)) = (config, self.worker) else {
            return Ok((None, None, None));
        };
        let region = self.gateway.config().region.as_str();
        let book = Arc::new(Book::from_pointee(Said::of_config(&config.regions)));
        let cluster = Cluster::start(ClusterParts {
            config: config.clone(),
            book: Arc::clone(&book),
            spill,
            me: (self.node, region),
            gateway: Arc::clone(self.gateway),
            worker: Arc::clone(worker),
            keeper: self.keeper.clone(),
            knowledge: Arc::clone(self.knowledge),
            feedback: self.feedback,
            tasks: self.tasks.clone(),
            stop: self.stop.clone(),
        })
        .map_err(no_cluster)?;
        let data = config.data.clone();
        let mut ties = Ties {
            me: (self.node.into(), region.into()),
            link: Arc::downgrade(cluster.link()),
            agreement: None,
            prefix_key: prefix_key(&config)?,
            data: data.clone(),
            runtime: Handle::current(),
            tasks: self.tasks.clone(),
        };
        let agreed = Box::pin(Agreed::start(AgreedParts {
            config,
            me: (self.node.into(), region.into()),
            link: Arc::clone(cluster.link()),
            book,
            keeper: self.keeper.clone(),
            feedback: self.feedback,
            tasks: self.tasks.clone(),
            stop: self.stop.clone(),
        }))
        .await?;
        ties.agreement = agreed.as_ref().map(|agreed| Arc::downgrade(agreed.agreement()));
        learning.tie(ties);
        let Some(agreed) = agreed else { return Ok((Some(cluster), None, None)) };
        let state = self.recall(&agreed, &region.into(), learning).await;
        let division = data.map(|folder| self.divide(folder, &agreed, &state));
        Ok((Some(cluster), Some(agreed), division))
    }

    /// Begins to hold limits by what this node knew last.
    fn divide(&self, folder: PathBuf, agreed: &Agreed, state: &Arc<State>) -> Division {
        let parts = DivisionParts {
            node: self.node.into(),
            region: self.gateway.config().region.as_str().into(),
            folder,
            gateway: Arc::clone(self.gateway),
            agreement: Arc::clone(agreed.agreement()),
            tasks: self.tasks.clone(),
            stop: self.stop.clone(),
        };
        let (division, dividing) = Division::start(parts, state);
        self.tasks.spawn(dividing);
        division
    }

    /// Serves by what the cluster had agreed on when this node knew it last, from its first request
    /// on.
    async fn recall(
        &self,
        agreed: &Agreed,
        region: &RegionName,
        learning: &mut Task,
    ) -> Arc<State> {
        let read = agreed.agreement().read(Consistency::Stale, RECALL_LIMIT, State::clone);
        let Ok(Read { value: state, .. }) = read.await else { return Arc::default() };
        if state.cluster().is_some() {
            learning.follow(&state);
            self.keys.take_state(&state);
            self.keeper.take_agreed(AgreedWorld::of(&state, region)).await;
        }
        Arc::new(state)
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        // A node that is dropped without `stop` still ends its threads.
        self.gateway.start_draining();
        self.stop_workers.cancel();
        self.stop_tasks.cancel();
    }
}

fn make_workers(gateway: &Arc<Gateway>, count: usize) -> Vec<Arc<Worker>> {
    (0..count).map(|id| Arc::new(Worker::new(id, Arc::clone(gateway)))).collect()
}

/// Hashes with the cluster's key, so that nodes agree on prompts and on where a request's key
/// belongs. A node that stands alone draws one: nothing outside it needs its hashes.
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

fn epoch_seconds() -> u64 {
    let since_epoch = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    since_epoch.map_or(0, |duration| duration.as_secs())
}
