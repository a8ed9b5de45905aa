//! Running network.

use std::collections::BTreeSet;
use std::io;
use std::net::Ipv4Addr;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{SyncSender, TrySendError, sync_channel};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use rustix::event::{EventfdFlags, eventfd};
use tokio::sync::{oneshot, watch};

use super::control::{ControlAnswer, ControlCommand, ControlError, NodeReport};
use super::forward::{ForwardAsk, Forwarder};
use super::hub::Hub;
use super::namespace::{Namespace, NamespaceId};
use super::sweep::{Sweeper, end_all};
use super::topology::Topology;

/// Most commands that wait for the forwarding thread, which answers thousands a second.
const ASKS_MAX: usize = 256;

/// Time that processes inside get to end by themselves when the network ends.
const GRACE: Duration = Duration::from_secs(2);

/// Error of a start.
#[derive(Debug, thiserror::Error)]
pub enum NetworkStartError {
    /// The process lacks the rights to make namespaces and devices.
    #[error("network namespaces need root (CAP_SYS_ADMIN and CAP_NET_ADMIN)")]
    Rights,
    /// The system refused something else.
    #[error("make {what}")]
    System {
        /// Name of the part that could not be made.
        what: String,
        /// Cause.
        source: io::Error,
    },
}

/// Running regions. Dropping this ends all processes inside, and the namespaces with them.
#[derive(Debug)]
pub struct WanNetwork {
    topology: Topology,
    namespaces: Vec<Namespace>,
    handle: Handle,
    forwarder: Option<JoinHandle<io::Result<()>>>,
    sweeper: Option<Sweeper>,
}

/// Handle for commands to a running network. Can be cloned.
#[derive(Clone, Debug)]
pub struct Handle {
    asks: SyncSender<ForwardAsk>,
    wake: Arc<OwnedFd>,
    nodes: Arc<[NodeReport]>,
    running: watch::Receiver<()>,
}

impl WanNetwork {
    /// Makes the namespaces and starts to forward packets.
    ///
    /// # Errors
    ///
    /// Returns [`NetworkStartError`]; nothing is left behind then.
    pub fn start(topology: Topology) -> Result<Self, NetworkStartError> {
        let mut namespaces = Vec::new();
        let mut devices = Vec::new();
        for config in &topology.namespaces {
            let region = &topology.regions[config.region].name;
            let (namespace, device) = Namespace::create(config, topology.mtu_bytes)
                .map_err(|source| refusal(&format!("a namespace for {region}"), source))?;
            namespaces.push(namespace);
            devices.push(device);
        }
        let wake = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
            .map_err(|error| refusal("an event", error.into()))?;
        let wake = Arc::new(wake);
        let (asks, inbox) = sync_channel(ASKS_MAX);
        let (running, ended) = watch::channel(());
        let hub = Hub::new(topology.clone());
        let forwarder = Forwarder { hub, devices, asks: inbox, wake: wake.clone() };
        let thread = thread::Builder::new()
            .name("forwarder".to_owned())
            .spawn(move || {
                let result = forwarder.run();
                // Dropping the sender wakes everyone who waits for the end, whatever the result.
                drop(running);
                result
            })
            .map_err(|error| refusal("a thread", error))?;
        let nodes = reports(&topology, &namespaces).into();
        let handle = Handle { asks, wake, nodes, running: ended };
        Ok(Self { topology, namespaces, handle, forwarder: Some(thread), sweeper: None })
    }

    /// Starts a second process that ends the processes inside if this one dies, even by SIGKILL.
    ///
    /// `launcher` is the path of the `spillway-chaos` program.
    ///
    /// # Errors
    ///
    /// Returns an error if the second process cannot be started.
    pub fn guard(&mut self, launcher: &Path) -> io::Result<()> {
        let paths: Vec<String> = self.namespaces.iter().map(Namespace::path).collect();
        self.sweeper = Some(Sweeper::start(launcher, &paths)?);
        Ok(())
    }

    /// Returns the topology of the network.
    #[must_use]
    pub fn topology(&self) -> &Topology {
        &self.topology
    }

    /// Returns a handle for commands.
    #[must_use]
    pub fn handle(&self) -> Handle {
        self.handle.clone()
    }

    /// Returns the namespace of a region's node, numbered from 1; `None` if there is no such node.
    #[must_use]
    pub fn namespace(&self, region: &str, node: u16) -> Option<&Namespace> {
        let index = self.topology.namespace(self.topology.region(region)?, node)?;
        self.namespaces.get(index)
    }
}

impl Drop for WanNetwork {
    fn drop(&mut self) {
        // Packets still flow while processes end their connections.
        let ids: BTreeSet<NamespaceId> = self.namespaces.iter().map(Namespace::id).collect();
        // The sweeper tries again to end the processes that this leaves.
        drop(end_all(&ids, GRACE));
        drop(self.handle.send(ControlCommand::Stop {}));
        if let Some(forwarder) = self.forwarder.take() {
            // Every `ended` has seen the end already, whatever the result.
            drop(forwarder.join());
        }
        self.sweeper = None;
    }
}

impl Handle {
    /// Returns the nodes of all regions.
    #[must_use]
    pub fn nodes(&self) -> &[NodeReport] {
        &self.nodes
    }

    /// Carries out a command. Blocks, so not for a thread of an asynchronous runtime.
    ///
    /// # Errors
    ///
    /// Returns [`ControlError`]; the network is unchanged then.
    pub fn ask(&self, command: ControlCommand) -> Result<ControlAnswer, ControlError> {
        if command == (ControlCommand::Nodes {}) {
            return Ok(ControlAnswer::Nodes(self.nodes.to_vec()));
        }
        self.send(command)?.blocking_recv().unwrap_or(Err(ControlError::Ended))
    }

    /// Carries out a command.
    ///
    /// # Errors
    ///
    /// Returns [`ControlError`]; the network is unchanged then.
    pub async fn ask_async(&self, command: ControlCommand) -> Result<ControlAnswer, ControlError> {
        if command == (ControlCommand::Nodes {}) {
            return Ok(ControlAnswer::Nodes(self.nodes.to_vec()));
        }
        self.send(command)?.await.unwrap_or(Err(ControlError::Ended))
    }

    /// Waits until the network no longer forwards packets.
    pub async fn ended(&self) {
        let mut running = self.running.clone();
        while running.changed().await.is_ok() {}
    }

    fn send(
        &self,
        command: ControlCommand,
    ) -> Result<oneshot::Receiver<Result<ControlAnswer, ControlError>>, ControlError> {
        let (answer, receiver) = oneshot::channel();
        self.asks.try_send(ForwardAsk { command, answer }).map_err(|error| match error {
            TrySendError::Full(_) => ControlError::Busy,
            TrySendError::Disconnected(_) => ControlError::Ended,
        })?;
        // Fails only if the counter is full, and then the thread is awake already.
        let _: Result<usize, _> = rustix::io::write(&*self.wake, &1_u64.to_ne_bytes());
        Ok(receiver)
    }
}

fn refusal(what: &str, source: io::Error) -> NetworkStartError {
    match source.kind() {
        io::ErrorKind::PermissionDenied => NetworkStartError::Rights,
        _ => NetworkStartError::System { what: what.to_owned(), source },
    }
}

fn reports(topology: &Topology, namespaces: &[Namespace]) -> Vec<NodeReport> {
    let mut reports = Vec::new();
    for (config, namespace) in topology.namespaces.iter().zip(namespaces) {
        let region = &topology.regions[config.region];
        let public = |address: Ipv4Addr| region.nat.as_ref().map_or(address, |nat| nat.public);
        reports.extend(config.nodes.iter().map(|(node, address)| NodeReport {
            region: region.name.clone(),
            node: *node,
            address: *address,
            public_address: public(*address),
            namespace: namespace.path(),
        }));
    }
    reports
}
