//! A running node: starts all parts, and ends them again without losing a request.

mod open;
mod stop;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use spillway_admin::Overview;
use spillway_cluster_state::State;
use spillway_config::{
    AdminListener, AtStart, ClusterConfig, Config, ConfigError, ReadFiles, SpillConfig,
    WorkerLayout,
};
use spillway_control_plane::ControlPlane;
use spillway_dns::{Locate, NameServer, NameServerState};
use spillway_front::client::TlsError;
use spillway_health::SteeringConfig;
use spillway_knowledge::{KnowledgeContext, KnowledgeHandle, KnowledgeTask};
use spillway_prefix::{PrefixConfig, PrefixConfigError, PrefixHasher};
use spillway_proxy::Worker;
use spillway_quota_division::{Division, DivisionParts, FileLimits, pay_own};
use spillway_raft::{Consistency, Read};
use spillway_request::gateway::{Gateway, GatewayConfig};
use spillway_resolver::Resolver;
use spillway_telemetry::Metrics;
use spillway_traces::{Origin, Traces};
use spillway_types::{RegionName, unix_ms};
use spillway_upstream::ReplicaTlsError;
use spillway_view::View;
use tokio::runtime::Handle;
use tokio_util::sync::CancellationToken;

use self::open::{
    named_holder, no_cluster, open_admin, open_dns, open_listeners, warn_of_clear_tokens,
};
pub use self::stop::Stopped;
use crate::access::KeyBook;
use crate::admin::{Admin, AdminSocket, serve_admin};
use crate::agreed::{Agreed, AgreedParts, RegionFacts, SharedRegionFacts};
use crate::all_nodes::LastAnswers;
use crate::certificates::shown_identities;
use crate::cluster::{Cluster, ClusterError, ClusterParts, prefix_key};
use crate::explain::Explainer;
use crate::feedback::Feedback;
use crate::fold::AgreedWorld;
use crate::health_watch;
use crate::keeper::{Keeper, KeeperHandle, KeeperParts};
use crate::liveness::Liveness;
use crate::locating::{Locating, open};
use crate::memory;
use crate::node_tasks::NodeTasks;
use crate::open_files;
use crate::overview::{OverviewSource, RegionCoordinates};
use crate::reload::{Reloader, RunningAdmin};
use crate::requests::RequestLog;
use crate::room::Room;
use crate::route_fields::RouteFields;
use crate::steering::{SteeringSource, steer};
use crate::usage::{self, Usage, UsageParts};
use crate::workers::{self, Bound, Threads, unit_count};

/// Time limit for reading the agreed state from the own disk.
const RECALL_LIMIT: Duration = Duration::from_secs(1);

/// A node could not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// An address can't be listened on.
    #[error("can't listen on {address}: {cause}{}", named_holder(holder.as_deref()))]
    Listen {
        /// Address that can't be listened on.
        address: SocketAddr,
        /// Cause of the failure.
        cause: std::io::Error,
        /// Process that has the address, if the address is taken and the process can be found.
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
    /// The link to other nodes can't be opened.
    #[error(transparent)]
    Cluster(#[from] ClusterError),
    /// A location database can't be used.
    #[error(transparent)]
    Geo(#[from] ConfigError),
    /// The agreed state can't be kept on disk.
    #[error("can't keep what the cluster agrees on: {0}")]
    ControlPlane(#[from] spillway_raft::RaftStartError),
    /// The operating system has no source of randomness.
    #[error("no randomness: {0}")]
    Randomness(#[from] getrandom::Error),
    /// A thread can't be started.
    #[error("can't start a worker: {0}")]
    Thread(std::io::Error),
}

/// Period of looking whether all threads run.
const LOOK: Duration = Duration::from_millis(100);

/// Path and text of the config, the files that it names, and its settings that wait for a restart.
type ConfigText = (PathBuf, String, ReadFiles, AtStart);

/// A node that serves.
#[derive(Debug)]
pub struct Node {
    name: String,
    addresses: Vec<SocketAddr>,
    admin_address: Option<SocketAddr>,
    dns_address: Option<SocketAddr>,
    gateway: Arc<Gateway>,
    feedback: Arc<Feedback>,
    threads: Threads,
    /// Ends the worker threads, with all requests that are left on them.
    stop_workers: CancellationToken,
    /// Tasks beside the data path.
    tasks: NodeTasks,
    keeper: KeeperHandle,
    keys: Arc<KeyBook>,
    locating: Locating,
    /// Coordinates of regions, for operators.
    places: Arc<RegionCoordinates>,
    /// Room in the data folder, for operators.
    room: Arc<Room>,
    /// The link to other nodes, if there are any.
    cluster: Option<Cluster>,
    /// This node's part in the agreed state.
    agreed: Option<Agreed>,
    /// This node's part in dividing limits.
    division: Option<Division>,
    /// Time for which the node serves on after the signal to stop; `None` if it is measured.
    drain_notice: Option<Duration>,
    drain: Duration,
    /// Orders for the audit trail, which are written before the node ends.
    audit: Option<spillway_admin::Admin>,
}

impl Node {
    /// Starts a node. Its tasks beside the data path run on the caller's runtime; threads of their
    /// own serve requests.
    ///
    /// # Errors
    /// Returns an error if a part can't start, such as a listener whose address is taken; nothing
    /// is left running then.
    pub fn start(config: Config) -> impl Future<Output = Result<Self, StartError>> + Send {
        // Boxed, since a config makes it large.
        Box::pin(Self::started(config))
    }

    #[expect(clippy::too_many_lines, reason = "the steps of a start, in their order")]
    async fn started(mut config: Config) -> Result<Self, StartError> {
        // Before any port opens: a bad database ends the start.
        let locations = open(&config.geo).await?;
        let facts = facts(&config);
        let units = unit_count(config.worker_layout, config.workers);
        let shown = shown_identities(&config.listeners, config.admin.as_ref());
        open_files::fit(&mut config.gateway.limits);
        let stall = config.gateway.limits.stall_timeout;
        let mut bound = open_listeners(config.listeners, stall).await?;
        let admin = open_admin(config.admin.as_ref()).await?;
        let name_server = open_dns(config.dns.as_ref())?;

        let requests = RequestLog::new(&config.node, &config.gateway.region);
        requests.set_access_log(&config.access_log);
        let origin = Origin { node: config.node.clone(), region: config.gateway.region.clone() };
        let tasks = NodeTasks::new();
        let resolver = Resolver::start(config.system_files, &tasks.tracker, &tasks.stop);
        // It trusts callers on this machine, and a registered replica may have any address.
        let own = admin.as_ref().and_then(|admin| admin.socket.local_addr().ok());
        resolver.forbid(own.into_iter().collect());
        let traces = Traces::new(origin, resolver.clone());
        let hasher = hasher(config.cluster.as_ref(), config.knowledge.prefix)?;
        let gateway = new_gateway(config.gateway, hasher)?;
        gateway.quotas().set_own(&config.limits);
        let budgets = config.access.budgets.clone();
        let keys = Arc::new(KeyBook::new(&gateway, config.access));
        // The last one serves requests that other nodes forward.
        let pools = units + usize::from(config.cluster.is_some());
        let workers = make_workers(&gateway, pools);
        let (mut learning, knowledge) = KnowledgeTask::new(config.knowledge, &gateway, &workers);
        let data = config.cluster.as_ref().and_then(|cluster| cluster.data.clone());
        let parts = UsageParts {
            node: config.node.as_str().into(),
            process: getrandom::u64()?,
            gateway: Arc::clone(&gateway),
            config: config.usage,
            data,
            prices: config.prices,
            budgets,
            overflow: config.world.overflow(),
        };
        let usage = Usage::open(parts, SystemTime::now());
        let counting = (Metrics::new(facts), requests, traces, usage);
        let feedback = Feedback::new(&gateway, &workers, counting, &knowledge, config.version);
        feedback.set_traces(config.traces.as_deref());
        let feedback = Arc::new(feedback);
        feedback.certificates.show(shown);
        let locating = Locating::start(config.geo, locations, &feedback, &tasks);
        let keeper = Keeper::start(KeeperParts {
            gateway: Arc::clone(&gateway),
            feedback: Arc::clone(&feedback),
            knowledge: Arc::clone(&knowledge),
            world: config.world,
            units: pools,
            resolver: resolver.clone(),
            tasks: tasks.clone(),
        })
        .await?;
        let base = Base {
            node: &config.node,
            gateway: &gateway,
            worker: workers.last(),
            keeper: &keeper,
            resolver: &resolver,
            knowledge: &knowledge,
            keys: &keys,
            feedback: &feedback,
            tasks: &tasks,
        };
        let places = config.cluster.as_ref().map(|it| RegionCoordinates::of_config(&it.regions));
        let places = places.unwrap_or_default();
        let room = Room::of(config.cluster.as_ref().and_then(|it| it.data.clone()));
        let dns = config.dns.map(|dns| Arc::new(NameServerState::new(dns, locate_by(&gateway))));
        // Boxed, since nearly nothing of the start is as large.
        let joining = Box::pin(base.join(config.cluster, dns.clone(), config.spill, &mut learning));
        let (cluster, agreed, division) = joining.await?;
        keeper.started().await;
        let stop_workers = CancellationToken::new();
        let serving = (&workers[..units], (config.worker_layout, config.workers), &stop_workers);
        let dns_address = name_server.as_ref().map(NameServer::address);
        let threads = base
            .start_threads(serving, &mut bound, name_server.zip(dns), learning)
            .map_err(StartError::Thread)?;

        let mut node = Self {
            name: config.node,
            addresses: bound.iter().map(|bound| bound.address).collect(),
            dns_address,
            admin_address: admin.as_ref().and_then(|admin| admin.socket.local_addr().ok()),
            gateway,
            feedback,
            threads,
            stop_workers,
            tasks,
            keeper,
            keys,
            locating,
            places: Arc::new(places),
            room: Arc::new(room),
            cluster,
            agreed,
            division,
            drain_notice: config.drain_notice,
            drain: config.drain,
            audit: None,
        };
        let file = config.path.map(|path| (path, config.text, config.files, config.at_start));
        node.audit = node.start_tasks(admin.zip(config.admin), file, bound, config.steering);
        Ok(node)
    }

    /// Returns the addresses that clients can connect to, in the config's order.
    #[must_use]
    pub fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }

    /// Returns the address of metrics and health.
    #[must_use]
    pub fn admin_address(&self) -> Option<SocketAddr> {
        self.admin_address
    }

    /// Returns the address of the name server, UDP and TCP.
    #[must_use]
    pub fn dns_address(&self) -> Option<SocketAddr> {
        self.dns_address
    }

    /// Returns the UDP address for other nodes.
    #[must_use]
    pub fn link_address(&self) -> Option<SocketAddr> {
        self.cluster.as_ref()?.address()
    }

    /// Returns the control plane with the agreed state; `None` if this node takes no part in that.
    #[must_use]
    pub fn control_plane(&self) -> Option<&Arc<ControlPlane>> {
        self.agreed.as_ref().map(Agreed::control_plane)
    }

    /// Returns a watch on this node's parts, which finds those that hang.
    #[must_use]
    pub fn liveness(&self) -> Liveness {
        Liveness::new(Arc::clone(&self.threads.beats), self.keeper.clone())
    }

    /// Waits until a task or thread that the node can't do without has ended by itself, and returns its
    /// name. The node is to be stopped then.
    pub async fn lost_part(&self) -> String {
        let ended = async {
            loop {
                let mut threads = self.threads.handles.iter();
                if let Some(ended) = threads.find(|handle| handle.is_finished()) {
                    return ended.thread().name().unwrap_or("a thread").to_owned();
                }
                tokio::time::sleep(LOOK).await;
            }
        };
        tokio::select! {
            task = self.tasks.watch.lost() => task.to_owned(),
            thread = ended => thread,
        }
    }

    /// Returns the metrics as text.
    #[must_use]
    pub fn metrics(&self) -> String {
        self.feedback.scrape()
    }

    /// Returns the state that requests share.
    #[must_use]
    pub fn gateway(&self) -> &Arc<Gateway> {
        &self.gateway
    }

    fn overview(&self, file: Option<&ConfigText>, bound: &[Bound]) -> OverviewSource {
        let listeners = bound.iter().map(|bound| (bound.address, Arc::clone(&bound.listener)));
        OverviewSource {
            node: self.name.clone(),
            config_file: file.map(|(path, ..)| path.clone()),
            listeners: listeners.collect(),
            feedback: Arc::clone(&self.feedback),
            keeper: self.keeper.clone(),
            places: Arc::clone(&self.places),
            room: Arc::clone(&self.room),
            last: LastAnswers::default(),
        }
    }

    /// Starts the tasks beside the data path. Returns the admin API, if there is one.
    fn start_tasks(
        &self,
        admin: Option<(AdminSocket, AdminListener)>,
        file: Option<ConfigText>,
        bound: Vec<Bound>,
        steering: SteeringConfig,
    ) -> Option<spillway_admin::Admin> {
        let stop = || self.tasks.stop.clone();
        self.tasks.spawn_vital("steering", steer(Arc::clone(&self.gateway), steering, stop()));
        self.tasks.spawn_vital("outcomes", Arc::clone(&self.feedback).run(stop()));
        self.tasks.spawn_vital("usage", usage::keep(Arc::clone(&self.feedback), stop()));
        self.tasks.spawn_vital("usage", usage::share(Arc::clone(&self.feedback), stop()));
        // The guests' worker has no thread of its own that would close its idle connections.
        if let (Some(_), Some(worker)) = (&self.cluster, self.feedback.workers.last()) {
            let sweeping = Arc::clone(worker).sweep_loop();
            self.tasks.tracker.spawn(self.tasks.watch.clone().vital("guests", sweeping));
        }
        self.tasks.spawn_vital("memory", memory::watch(Arc::clone(&self.gateway), stop()));
        let (paying, stopped) = (pay_own(Arc::clone(&self.gateway)), stop());
        self.tasks.spawn_vital("limits", async move { stopped.run_until_cancelled(paying).await });
        if let Some(control_plane) = self.control_plane() {
            self.follow_records(control_plane, (stop(), stop()));
        }
        let source = Arc::new(self.overview(file.as_ref(), &bound));
        let overview: Arc<dyn Overview> = Arc::clone(&source) as _;
        let judging = health_watch::watch(
            Arc::clone(&overview),
            self.control_plane().cloned(),
            Arc::clone(&self.feedback),
            stop(),
        );
        self.tasks.spawn_vital("health", judging);
        let running = admin.as_ref().map(|(socket, config)| {
            warn_of_clear_tokens(config);
            let api = spillway_admin::Admin::new(self.control_plane().cloned(), config.api.clone());
            let api = api.admitting(self.keys.taken()).checking(Arc::new(RouteFields));
            let api = api.limiting(Arc::new(FileLimits(Arc::clone(&self.gateway))));
            let api = api.steering(Arc::new(SteeringSource(Arc::clone(&self.gateway))));
            let api = api.remembering(Arc::clone(&self.feedback) as _);
            let api = api.overviewing(Arc::clone(&overview)).asking(source);
            let (writing, stop) = (api.write_orders(), stop());
            let writing = async move { stop.run_until_cancelled(writing).await };
            // Without a cluster it ends at once.
            self.tasks.tracker.spawn(self.tasks.watch.clone().vital("orders", writing));
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
            let serving = serve_admin(socket, shown, stop(), self.tasks.tracker.clone());
            self.tasks.spawn_vital("admin listener", serving);
        }
        let audit = running.as_ref().map(|running| running.api.clone());
        if let Some((path, text, files, at_start)) = file {
            let reloader = Reloader {
                path,
                text,
                files,
                at_start,
                keeper: self.keeper.clone(),
                keys: Arc::clone(&self.keys),
                locating: self.locating.clone(),
                admin: running,
                listeners: bound
                    .into_iter()
                    .map(|bound| (bound.configured, bound.listener))
                    .collect(),
                feedback: Arc::clone(&self.feedback),
                link: self.cluster.as_ref().map(|cluster| Arc::downgrade(cluster.link())),
            };
            self.tasks.spawn_vital("config", reloader.run(stop()));
        }
        audit
    }

    /// Follows what the cluster says of keys and tenants, budgets and prices.
    fn follow_records(
        &self,
        control_plane: &Arc<ControlPlane>,
        (stop, stopped): (CancellationToken, CancellationToken),
    ) {
        self.keys.await_news(control_plane);
        let keys = Arc::clone(&self.keys).follow(Arc::clone(control_plane));
        self.tasks.spawn_vital("keys", async move { stop.run_until_cancelled(keys).await });
        let bills = usage::follow(Arc::clone(&self.feedback), Arc::clone(control_plane));
        self.tasks.spawn_vital("bills", async move { stopped.run_until_cancelled(bills).await });
    }
}

/// Returns the constant labels of this process in metrics.
fn facts(config: &Config) -> Vec<(String, String)> {
    let region = &config.gateway.region;
    let facts = [("version", &config.version), ("node", &config.node), ("region", region)];
    facts.map(|(name, value)| (name.to_owned(), value.to_owned())).into()
}

/// Parts of a node that stand before it joins others.
struct Base<'a> {
    node: &'a str,
    gateway: &'a Arc<Gateway>,
    /// Serves requests that other nodes forward.
    worker: Option<&'a Arc<Worker>>,
    keeper: &'a KeeperHandle,
    resolver: &'a Resolver,
    knowledge: &'a Arc<KnowledgeHandle>,
    keys: &'a KeyBook,
    feedback: &'a Arc<Feedback>,
    tasks: &'a NodeTasks,
}

impl Base<'_> {
    /// Starts the threads that serve requests, answer queries for names, and learn.
    ///
    /// # Errors
    /// Returns an error if the operating system has no more threads.
    fn start_threads(
        &self,
        (workers, layout, stop_workers): (
            &[Arc<Worker>],
            (WorkerLayout, usize),
            &CancellationToken,
        ),
        bound: &mut [Bound],
        named: Option<(NameServer, Arc<NameServerState>)>,
        learning: KnowledgeTask,
    ) -> std::io::Result<Threads> {
        let mut threads = workers::start(
            workers,
            self.gateway,
            bound,
            layout,
            (stop_workers, &self.tasks.watch),
        )?;
        if let Some((server, served)) = named {
            self.feedback.watch_dns(Arc::clone(&served));
            threads.push(server.start(served, self.tasks.stop.clone())?);
        }
        threads.push(learning.start(self.tasks.stop.clone())?);
        Ok(threads)
    }

    /// Starts the cluster, the agreed state and the division of limits, if the config has them.
    async fn join(
        &self,
        config: Option<ClusterConfig>,
        dns: Option<Arc<NameServerState>>,
        spill: SpillConfig,
        learning: &mut KnowledgeTask,
    ) -> Result<(Option<Cluster>, Option<Agreed>, Option<Division>), StartError> {
        let (Some(config), Some(worker)) = (config, self.worker) else {
            return Ok((None, None, None));
        };
        let region = self.gateway.config().region.as_str();
        let region_facts =
            Arc::new(SharedRegionFacts::from_pointee(RegionFacts::of_config(&config.regions)));
        let cluster = Cluster::start(ClusterParts {
            config: config.clone(),
            region_facts: Arc::clone(&region_facts),
            spill,
            dns,
            me: (self.node, region),
            gateway: Arc::clone(self.gateway),
            worker: Arc::clone(worker),
            keeper: self.keeper.clone(),
            resolver: self.resolver.clone(),
            knowledge: Arc::clone(self.knowledge),
            feedback: self.feedback,
            tasks: self.tasks.clone(),
        })
        .map_err(no_cluster)?;
        let data = config.data.clone();
        let mut context = KnowledgeContext {
            me: (self.node.into(), region.into()),
            link: Arc::downgrade(cluster.link()),
            control_plane: None,
            prefix_key: prefix_key(&config)?,
            data: data.clone(),
            runtime: Handle::current(),
            tasks: self.tasks.tracker.clone(),
        };
        let agreed = Box::pin(Agreed::start(AgreedParts {
            config,
            me: (self.node.into(), region.into()),
            link: Arc::clone(cluster.link()),
            region_facts,
            keeper: self.keeper.clone(),
            feedback: self.feedback,
            tasks: self.tasks.clone(),
        }))
        .await?;
        context.control_plane =
            agreed.as_ref().map(|agreed| Arc::downgrade(agreed.control_plane()));
        learning.connect(context);
        let Some(agreed) = agreed else { return Ok((Some(cluster), None, None)) };
        let state = self.recall(&agreed, &region.into(), learning).await;
        let division = match data {
            Some(folder) => Some(self.divide(folder, &agreed, state).await),
            None => None,
        };
        Ok((Some(cluster), Some(agreed), division))
    }

    /// Starts holding limits, with what this node knew last.
    async fn divide(&self, folder: PathBuf, agreed: &Agreed, state: Arc<State>) -> Division {
        let parts = DivisionParts {
            node: self.node.into(),
            region: self.gateway.config().region.as_str().into(),
            folder,
            gateway: Arc::clone(self.gateway),
            control_plane: Arc::clone(agreed.control_plane()),
            tasks: self.tasks.tracker.clone(),
            stop: self.tasks.stop.clone(),
        };
        let (division, dividing) = Division::start(parts, state).await;
        self.tasks.spawn_vital("division of limits", dividing);
        division
    }

    /// Applies the agreed state that this node knew last, so that its first request is served by
    /// it. Returns that state, empty if it can't be read.
    async fn recall(
        &self,
        agreed: &Agreed,
        region: &RegionName,
        learning: &mut KnowledgeTask,
    ) -> Arc<State> {
        let read = agreed.control_plane().read(Consistency::Stale, RECALL_LIMIT, State::clone);
        let Ok(Read { value: state, .. }) = read.await else { return Arc::default() };
        if state.cluster().is_some() {
            learning.follow(&state);
            self.keys.take_state(&state);
            self.feedback.usage.take_state(&state, SystemTime::now());
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
        self.tasks.stop.cancel();
    }
}

fn new_gateway(config: GatewayConfig, hasher: PrefixHasher) -> Result<Arc<Gateway>, StartError> {
    let config = GatewayConfig { seed: getrandom::u64()?, ..config };
    let started_s = unix_ms(SystemTime::now()) / 1_000;
    Ok(Arc::new(Gateway::new(config, hasher, View::empty(), started_s)))
}

/// Returns a function that locates clients by the databases in use at that moment.
fn locate_by(gateway: &Arc<Gateway>) -> Locate {
    let gateway = Arc::clone(gateway);
    Arc::new(move |address| {
        let locations = gateway.locations();
        locations.locator.as_ref().map(|locator| locator.locate(address)).unwrap_or_default()
    })
}

fn make_workers(gateway: &Arc<Gateway>, count: usize) -> Vec<Arc<Worker>> {
    (0..count).map(|id| Arc::new(Worker::new(id, Arc::clone(gateway)))).collect()
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
