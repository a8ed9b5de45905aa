//! A running node: starts all parts, and ends them again without losing a request.

mod core;
mod drain;
mod joined;
mod open;
mod services;
mod start_error;

use std::net::SocketAddr;
use std::sync::{Arc, Weak};
use std::time::Duration;

use spillway_config::Config;
use spillway_control_plane::ControlPlane;
use spillway_dns::{NameServer, NameServerState};
use spillway_knowledge::KnowledgeTask;
use spillway_link::Link;
use spillway_request::gateway::Gateway;
use tokio_util::sync::CancellationToken;

use self::core::NodeCore;
pub use self::drain::Stopped;
use self::joined::Joined;
use self::open::Sockets;
use self::services::{ConfigSource, Services};
pub use self::start_error::StartError;
use crate::certificates::shown_identities;
use crate::keeper::{Keeper, KeeperHandle};
use crate::liveness::Liveness;
use crate::local_node::LocalNode;
use crate::locating::{Locating, open};
use crate::open_files;
use crate::scrape::Scrape;
use crate::workers::{self, Threads};

/// Period of looking whether all threads run.
const LOOK: Duration = Duration::from_millis(100);

/// A node that serves.
#[derive(Debug)]
pub struct Node {
    addresses: Vec<SocketAddr>,
    admin_address: Option<SocketAddr>,
    dns_address: Option<SocketAddr>,
    core: NodeCore,
    scrape: Arc<Scrape>,
    threads: Threads,
    /// Ends the worker threads, with all requests that are left on them.
    stop_workers: CancellationToken,
    keeper: KeeperHandle,
    /// This node's part in a cluster.
    joined: Joined,
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

    async fn started(mut config: Config) -> Result<Self, StartError> {
        // Before any port opens: a bad database ends the start.
        let locations = open(&config.geo).await?;
        open_files::fit(&mut config.gateway.limits);
        let shown = shown_identities(&config.listeners, config.admin.as_ref());
        let mut sockets = Sockets::open(&mut config).await?;
        let (core, mut learning) = NodeCore::new(&config, sockets.admin_address())?;
        core.certificates.show(shown);
        let (routing, metrics) = (&core.data_path.gateway.routing, &core.outcomes.metrics);
        let locating = Locating::start(config.geo, locations, routing, metrics, &core.tasks);
        let (world, resolver) = (config.world, core.resolver.clone());
        let keeper =
            Keeper::start(&core.data_path, &core.outcomes, world, resolver, &core.tasks).await?;
        let local = LocalNode {
            name: config.node,
            version: config.version,
            gateway: Arc::clone(&core.data_path.gateway),
            outcomes: Arc::clone(&core.outcomes),
            keeper: keeper.clone(),
        };
        let dns = config.dns.map(|dns| Arc::new(NameServerState::new(dns, core.locate())));
        let regions = config.cluster.as_ref();
        let services = Services::of_config(&local, regions, config.steering, locating);
        let spill = (config.spill, dns.clone());
        // Boxed, since nearly nothing of the start is as large.
        let joining = Box::pin(Joined::start(&core, &local, config.cluster, spill, &mut learning));
        let joined = joining.await?;
        keeper.started().await;
        let stop_workers = CancellationToken::new();
        let scrape = Arc::new(Scrape {
            local,
            knowledge: Arc::clone(&core.data_path.knowledge),
            certificates: Arc::clone(&core.certificates),
            cluster: joined.cluster.as_ref().map(|cluster| cluster.watched()),
            control_plane: joined.agreed.as_ref().map(|agreed| agreed.watched()),
            dns: dns.clone(),
        });
        let mut node = Self {
            addresses: sockets.addresses(),
            admin_address: sockets.admin_address(),
            dns_address: sockets.name_server.as_ref().map(NameServer::address),
            threads: Threads::default(),
            core,
            scrape,
            stop_workers,
            keeper,
            joined,
            drain_notice: config.drain_notice,
            drain: config.drain,
            audit: None,
        };
        let units = config.workers;
        node.start_threads(units, &mut sockets, dns, learning).map_err(StartError::Thread)?;
        let file = config.path.map(|path| ConfigSource {
            path,
            text: config.text,
            files: config.files,
            at_start: config.at_start,
        });
        node.audit = services.start(&node, sockets, config.admin, file);
        Ok(node)
    }

    /// Starts the threads that serve requests, answer queries for names, and learn.
    ///
    /// # Errors
    /// Returns an error if the operating system has no more threads.
    fn start_threads(
        &mut self,
        units: usize,
        sockets: &mut Sockets,
        dns: Option<Arc<NameServerState>>,
        learning: KnowledgeTask,
    ) -> std::io::Result<()> {
        let NodeCore { data_path, tasks, .. } = &self.core;
        self.threads = workers::start(
            &data_path.workers[..units],
            &data_path.gateway.door,
            &mut sockets.bound,
            &self.stop_workers,
            &tasks.watch,
        )?;
        if let Some((server, served)) = sockets.name_server.take().zip(dns) {
            self.threads.push(server.start(served, tasks.stop.clone())?);
        }
        self.threads.push(learning.start(tasks.stop.clone())?);
        Ok(())
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
        self.joined.cluster.as_ref()?.address()
    }

    /// Returns the control plane with the agreed state; `None` if this node takes no part in that.
    #[must_use]
    pub fn control_plane(&self) -> Option<&Arc<ControlPlane>> {
        self.joined.control_plane()
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
            task = self.core.tasks.watch.lost() => task.to_owned(),
            thread = ended => thread,
        }
    }

    /// Returns the metrics as text.
    #[must_use]
    pub fn metrics(&self) -> String {
        self.scrape.text()
    }

    /// Returns the state that requests share.
    #[must_use]
    pub fn gateway(&self) -> &Arc<Gateway> {
        &self.core.data_path.gateway
    }

    /// Returns the link to other nodes; one that can't be upgraded outside a cluster.
    fn link(&self) -> Weak<Link> {
        let cluster = self.joined.cluster.as_ref();
        cluster.map(|cluster| Arc::downgrade(cluster.link())).unwrap_or_default()
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        // A node that is dropped without `stop` still ends its threads.
        self.core.data_path.gateway.start_draining();
        self.stop_workers.cancel();
        self.core.tasks.stop.cancel();
    }
}
