//! A running network.

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

use super::control::{Answer, Command, ControlError, PlaceReport};
use super::forward::{Ask, Forwarder};
use super::hub::Hub;
use super::namespace::{Namespace, NamespaceId};
use super::sweep::{Sweeper, end_all};
use super::topology::Topology;

/// Commands that wait for the forwarding thread: it answers thousands a second.
const ASKS_MAX: usize = 256;

/// How long processes inside may take to end by themselves when the network ends.
const GRACE: Duration = Duration::from_secs(2);

/// Why no network could be made.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// Namespaces and devices are for root.
    #[error("network namespaces need root (CAP_SYS_ADMIN and CAP_NET_ADMIN)")]
    Rights,
    /// The system refused something else.
    #[error("make {what}")]
    System {
        /// What could not be made.
        what: String,
        /// Why not.
        source: io::Error,
    },
}

/// Regions that run: dropping it ends all processes inside, and the namespaces with them.
#[derive(Debug)]
pub struct Network {
    topology: Topology,
    namespaces: Vec<Namespace>,
    handle: Handle,
    forwarder: Option<JoinHandle<io::Result<()>>>,
    sweeper: Option<Sweeper>,
}

/// Asks a running network; as many of them as needed.
#[derive(Clone, Debug)]
pub struct Handle {
    asks: SyncSender<Ask>,
    wake: Arc<OwnedFd>,
    places: Arc<[PlaceReport]>,
    running: watch::Receiver<()>,
}

impl Network {
    /// Makes the namespaces and starts to forward packets.
    ///
    /// # Errors
    ///
    /// [`StartError`]; nothing is left behind then.
    pub fn start(topology: Topology) -> Result<Self, StartError> {
        let mut namespaces = Vec::new();
        let mut devices = Vec::new();
        for place in &topology.places {
            let region = &topology.regions[place.region].name;
            let (namespace, device) = Namespace::create(place, topology.mtu_bytes)
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
                // Those who wait for the end see it, whatever the result.
                drop(running);
                result
            })
            .map_err(|error| refusal("a thread", error))?;
        let places = reports(&topology, &namespaces).into();
        let handle = Handle { asks, wake, places, running: ended };
        Ok(Self { topology, namespaces, handle, forwarder: Some(thread), sweeper: None })
    }

    /// From now on, not even SIGKILL to this process leaves processes inside behind.
    ///
    /// `launcher` is the `spillway-chaos` program.
    ///
    /// # Errors
    ///
    /// When it cannot be started.
    pub fn guard(&mut self, launcher: &Path) -> io::Result<()> {
        let paths: Vec<String> = self.namespaces.iter().map(Namespace::path).collect();
        self.sweeper = Some(Sweeper::start(launcher, &paths)?);
        Ok(())
    }

    /// What the network was made of.
    #[must_use]
    pub fn topology(&self) -> &Topology {
        &self.topology
    }

    /// For commands.
    #[must_use]
    pub fn handle(&self) -> Handle {
        self.handle.clone()
    }

    /// The namespace of a region's node, which are counted from 1.
    #[must_use]
    pub fn namespace(&self, region: &str, node: u16) -> Option<&Namespace> {
        let place = self.topology.place(self.topology.region(region)?, node)?;
        self.namespaces.get(place)
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        // Packets go on while processes say good-bye to each other.
        let ids: BTreeSet<NamespaceId> = self.namespaces.iter().map(Namespace::id).collect();
        // What does not end now is the sweeper's to try, or keeps its namespace.
        drop(end_all(&ids, GRACE));
        drop(self.handle.send(Command::Stop {}));
        if let Some(forwarder) = self.forwarder.take() {
            // Its error was told to whoever waited for `ended`.
            drop(forwarder.join());
        }
        self.sweeper = None;
    }
}

impl Handle {
    /// Has a command carried out. Not for use on an asynchronous runtime's thread.
    ///
    /// # Errors
    ///
    /// [`ControlError`]: nothing was changed.
    pub fn ask(&self, command: Command) -> Result<Answer, ControlError> {
        if command == (Command::Places {}) {
            return Ok(Answer::Places(self.places.to_vec()));
        }
        self.send(command)?.blocking_recv().unwrap_or(Err(ControlError::Ended))
    }

    /// Has a command carried out.
    ///
    /// # Errors
    ///
    /// [`ControlError`]: nothing was changed.
    pub async fn ask_async(&self, command: Command) -> Result<Answer, ControlError> {
        if command == (Command::Places {}) {
            return Ok(Answer::Places(self.places.to_vec()));
        }
        self.send(command)?.await.unwrap_or(Err(ControlError::Ended))
    }

    /// Waits until the network has stopped to forward packets.
    pub async fn ended(&self) {
        let mut running = self.running.clone();
        while running.changed().await.is_ok() {}
    }

    fn send(
        &self,
        command: Command,
    ) -> Result<oneshot::Receiver<Result<Answer, ControlError>>, ControlError> {
        let (answer, receiver) = oneshot::channel();
        self.asks.try_send(Ask { command, answer }).map_err(|error| match error {
            TrySendError::Full(_) => ControlError::Busy,
            TrySendError::Disconnected(_) => ControlError::Ended,
        })?;
        // Fails only when the counter is full, and then the thread is awake.
        let _: Result<usize, _> = rustix::io::write(&*self.wake, &1_u64.to_ne_bytes());
        Ok(receiver)
    }
}

fn refusal(what: &str, source: io::Error) -> StartError {
    match source.kind() {
        io::ErrorKind::PermissionDenied => StartError::Rights,
        _ => StartError::System { what: what.to_owned(), source },
    }
}

fn reports(topology: &Topology, namespaces: &[Namespace]) -> Vec<PlaceReport> {
    let mut reports = Vec::new();
    for (place, namespace) in topology.places.iter().zip(namespaces) {
        let region = &topology.regions[place.region];
        let public = |address: Ipv4Addr| region.nat.as_ref().map_or(address, |nat| nat.public);
        reports.extend(place.nodes.iter().map(|(node, address)| PlaceReport {
            region: region.name.clone(),
            node: *node,
            address: *address,
            public_address: public(*address),
            namespace: namespace.path(),
        }));
    }
    reports
}
