//! Tasks that a node runs beside the data path once it serves.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use spillway_admin::Overview;
use spillway_config::{AdminListener, AtStart, ClusterConfig, ReadFiles};
use spillway_control_plane::ControlPlane;
use spillway_front::client::Listener;
use spillway_health::SteeringConfig;
use spillway_quota_division::{FileLimits, pay_own};

use super::Node;
use super::core::NodeCore;
use super::open::{Sockets, warn_of_clear_tokens};
use crate::admin::{Admin, AdminSocket, serve_admin};
use crate::all_nodes::LastAnswers;
use crate::explain::Explainer;
use crate::health_watch;
use crate::local_node::LocalNode;
use crate::locating::Locating;
use crate::memory;
use crate::overview::{OverviewSource, RegionCoordinates};
use crate::reload::{Reloader, RunningAdmin};
use crate::room::Room;
use crate::route_fields::RouteFields;
use crate::steering::{SteeringSource, steer};
use crate::usage;
use crate::workers::Bound;

/// The config file as the node was started with it.
#[derive(Debug)]
pub(super) struct ConfigSource {
    pub(super) path: PathBuf,
    pub(super) text: String,
    /// Files that it names.
    pub(super) files: ReadFiles,
    /// Its settings that wait for a restart.
    pub(super) at_start: AtStart,
}

/// Tasks beside the data path, as the config has them.
#[derive(Debug)]
pub(super) struct Services {
    local: LocalNode,
    /// RegionCoordinates of regions, for operators.
    places: Arc<RegionCoordinates>,
    /// Room in the data folder, for operators.
    room: Arc<Room>,
    steering: SteeringConfig,
    /// Reader of location databases, which reads them again after a reload.
    locating: Locating,
}

impl Services {
    pub(super) fn of_config(
        local: &LocalNode,
        cluster: Option<&ClusterConfig>,
        steering: SteeringConfig,
        locating: Locating,
    ) -> Self {
        let places =
            cluster.map(|it| RegionCoordinates::of_config(&it.regions)).unwrap_or_default();
        let room = Room::of(cluster.and_then(|it| it.data.clone()));
        let (places, room) = (Arc::new(places), Arc::new(room));
        Self { local: local.clone(), places, room, steering, locating }
    }

    /// Starts the tasks. Returns the admin API, if there is one.
    pub(super) fn start(
        self,
        node: &Node,
        sockets: Sockets,
        admin: Option<AdminListener>,
        file: Option<ConfigSource>,
    ) -> Option<spillway_admin::Admin> {
        self.start_upkeep(node);
        let source = Arc::new(self.overview(node, file.as_ref(), &sockets.bound));
        let overview: Arc<dyn Overview> = Arc::clone(&source) as _;
        let control_plane = node.joined.control_plane();
        if let Some(control_plane) = control_plane {
            self.follow_records(&node.core, control_plane);
        }
        let (tasks, health) = (&node.core.tasks, Arc::clone(&node.core.outcomes.health));
        let judging =
            health_watch::watch(overview, control_plane.cloned(), health, tasks.stop.clone());
        tasks.spawn_vital("health", judging);
        let admin = sockets.admin.zip(admin);
        let admin = admin.map(|(socket, config)| self.start_admin(node, socket, config, source));
        let audit = admin.as_ref().map(|running| running.api.clone());
        if let Some(file) = file {
            self.start_reloader(node, file, admin, sockets.bound);
        }
        audit
    }

    /// Starts what goes on in every node: steering, counting, usage, memory and debts.
    fn start_upkeep(&self, node: &Node) {
        let NodeCore { tasks, data_path, outcomes, .. } = &node.core;
        let (gateway, stop) = (&data_path.gateway, || tasks.stop.clone());
        tasks.spawn_vital("steering", steer(Arc::clone(gateway), self.steering, stop()));
        tasks.spawn_vital("outcomes", Arc::clone(outcomes).run(stop()));
        tasks.spawn_vital("usage", usage::keep(Arc::clone(&outcomes.usage), stop()));
        let sharing = usage::share(Arc::clone(&outcomes.usage), node.link(), stop());
        tasks.spawn_vital("usage", sharing);
        // The guests' worker has no thread of its own that would close its idle connections.
        if let (Some(_), Some(worker)) = (&node.joined.cluster, data_path.workers.last()) {
            let sweeping = Arc::clone(worker).sweep_loop();
            tasks.tracker.spawn(tasks.watch.clone().vital("guests", sweeping));
        }
        tasks.spawn_vital("memory", memory::watch(Arc::clone(&gateway.door), stop()));
        let (paying, stop) = (pay_own(Arc::clone(&gateway.clients)), stop());
        tasks.spawn_vital("limits", async move { stop.run_until_cancelled(paying).await });
    }

    /// Follows what the cluster says of keys and tenants, budgets and prices.
    fn follow_records(&self, core: &NodeCore, control_plane: &Arc<ControlPlane>) {
        core.keys.await_news(control_plane);
        let keys = Arc::clone(&core.keys).follow(Arc::clone(control_plane));
        let (tasks, stop) = (&core.tasks, core.tasks.stop.clone());
        tasks.spawn_vital("keys", async move { stop.run_until_cancelled(keys).await });
        let usage = Arc::clone(&core.outcomes.usage);
        let bills = usage::follow(usage, Arc::clone(control_plane));
        let stop = tasks.stop.clone();
        tasks.spawn_vital("bills", async move { stop.run_until_cancelled(bills).await });
    }

    fn overview(
        &self,
        node: &Node,
        file: Option<&ConfigSource>,
        bound: &[Bound],
    ) -> OverviewSource {
        let listeners = bound.iter().map(|bound| (bound.address, Arc::clone(&bound.listener)));
        OverviewSource {
            config_file: file.map(|file| file.path.clone()),
            listeners: listeners.collect(),
            local: self.local.clone(),
            certificates: Arc::clone(&node.core.certificates),
            link: node.link(),
            places: Arc::clone(&self.places),
            room: Arc::clone(&self.room),
            last: LastAnswers::default(),
        }
    }

    /// Serves the admin listener.
    fn start_admin(
        &self,
        node: &Node,
        socket: AdminSocket,
        config: AdminListener,
        source: Arc<OverviewSource>,
    ) -> RunningAdmin {
        warn_of_clear_tokens(&config);
        let NodeCore { tasks, data_path, outcomes, keys, .. } = &node.core;
        let gateway = &data_path.gateway;
        let control_plane = node.joined.control_plane().cloned();
        let api = spillway_admin::Admin::new(control_plane, config.api.clone());
        let api = api.admitting(keys.taken()).checking(Arc::new(RouteFields));
        let api = api.limiting(Arc::new(FileLimits(Arc::clone(&gateway.clients))));
        let api = api.steering(Arc::new(SteeringSource {
            routing: Arc::clone(&gateway.routing),
            switches: Arc::clone(&gateway.switches),
        }));
        let api = api.remembering(Arc::clone(outcomes) as _);
        let overview: Arc<dyn Overview> = Arc::clone(&source) as _;
        let api = api.overviewing(overview).asking(source);
        let api = match data_path.workers.first() {
            Some(asked) => api.explaining(Arc::new(Explainer(Arc::clone(asked)))),
            None => api,
        };
        let (writing, stop) = (api.write_orders(), tasks.stop.clone());
        let writing = async move { stop.run_until_cancelled(writing).await };
        // Without a cluster it ends at once.
        tasks.tracker.spawn(tasks.watch.clone().vital("orders", writing));
        let (local, scrape) = (self.local.clone(), Arc::clone(&node.scrape));
        let running = RunningAdmin { config, api: api.clone(), tls: socket.tls.clone() };
        let shown = Admin { local, scrape, api };
        let serving = serve_admin(socket, shown, tasks.stop.clone(), tasks.tracker.clone());
        tasks.spawn_vital("admin listener", serving);
        running
    }

    /// Has changes of the config file applied.
    fn start_reloader(
        &self,
        node: &Node,
        file: ConfigSource,
        admin: Option<RunningAdmin>,
        bound: Vec<Bound>,
    ) {
        let NodeCore { tasks, data_path, outcomes, keys, certificates, .. } = &node.core;
        let listeners: Vec<(SocketAddr, Arc<Listener>)> =
            bound.into_iter().map(|bound| (bound.configured, bound.listener)).collect();
        let reloader = Reloader {
            path: file.path,
            text: file.text,
            files: file.files,
            at_start: file.at_start,
            keeper: node.keeper.clone(),
            keys: Arc::clone(keys),
            locating: self.locating.clone(),
            admin,
            listeners,
            clients: Arc::clone(&data_path.gateway.clients),
            switches: Arc::clone(&data_path.gateway.switches),
            outcomes: Arc::clone(outcomes),
            certificates: Arc::clone(certificates),
            link: node.link(),
        };
        tasks.spawn_vital("config", reloader.run(tasks.stop.clone()));
    }
}
