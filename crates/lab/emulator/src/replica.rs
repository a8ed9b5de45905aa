//! Replica: an engine with its faults and its ledger of requests.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use http::HeaderMap;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::api::ResponseStore;
use crate::config::EmulatorConfig;
use crate::driver::Driver;
use crate::fault::{Fault, FaultError};
use crate::freeze_gate::FreezeGate;
use crate::kv_events::KvPublisher;
use crate::ledger::CallLedger;
use crate::life::{Life, Listening};
use crate::options::ReplyOptions;
use crate::replica_port::ReplicaPort;
use crate::stats::ReplicaStats;
use crate::usage::UsageReport;

/// Function that serves a port for a replica.
///
/// The server answers requests with the replica, so the replica cannot name the server.
pub(crate) type Listen = fn(&Arc<EmulatedReplica>, TcpListener) -> Listening;

/// Parts that all replicas of an emulator share.
#[derive(Clone, Debug)]
pub(crate) struct ReplicaRuntime {
    pub(crate) tasks: TaskTracker,
    pub(crate) stop: CancellationToken,
    pub(crate) listen: Listen,
}

/// State of one replica, shared by its tasks and handles.
#[derive(Debug)]
pub(crate) struct EmulatedReplica {
    pub(crate) index: u16,
    pub(crate) address: SocketAddr,
    pub(crate) models: Vec<String>,
    pub(crate) seed: u64,
    pub(crate) body_bytes_max: usize,
    pub(crate) connections_max: usize,
    /// Random number of this replica and process, so that ids differ between them.
    pub(crate) instance: u64,
    pub(crate) driver: Arc<Driver>,
    pub(crate) ledger: Arc<CallLedger>,
    pub(crate) responses: Mutex<ResponseStore>,
    /// All replicas of the process, so that a crashed one can be healed through another.
    pub(crate) siblings: OnceLock<Vec<Weak<Self>>>,
    /// Publisher of KV events with its address, if there is one.
    kv_events: OnceLock<(SocketAddr, KvPublisher)>,
    pub(crate) tasks: TaskTracker,
    pub(crate) stop: CancellationToken,
    pub(crate) listen: Listen,
    condition: Mutex<Condition>,
    /// Port of the replica; locked while it is opened or closed.
    replica_port: tokio::sync::Mutex<ReplicaPort>,
    /// Gate that is shut while the replica is frozen.
    pub(crate) freeze_gate: FreezeGate,
}

/// Current fault of a replica, and form of its replies.
#[derive(Debug)]
struct Condition {
    fault: Fault,
    options: ReplyOptions,
    /// Number of changes so far, so that a fault with a time limit ends only itself.
    changes: u64,
    /// Random numbers that decide which requests a fault with a probability hits.
    rng: fastrand::Rng,
    life: Life,
}

impl EmulatedReplica {
    /// Creates a replica for `listener`, which is already open.
    pub(crate) fn new(
        config: &EmulatorConfig,
        index: u16,
        listener: &TcpListener,
        runtime: &ReplicaRuntime,
    ) -> std::io::Result<Self> {
        let address = listener.local_addr()?;
        let models = config.models.clone();
        let condition = Condition {
            fault: Fault::None,
            options: config.options,
            changes: 0,
            rng: fastrand::Rng::with_seed(config.seed ^ u64::from(index)),
            life: Life::new(&runtime.stop),
        };
        Ok(Self {
            index,
            address,
            seed: config.seed,
            body_bytes_max: config.body_bytes_max,
            connections_max: config.connections_max,
            instance: instance(address),
            driver: Arc::new(Driver::new(config.engine, config.time_scale, models.clone())),
            models,
            ledger: Arc::new(CallLedger::new(config.records_max)),
            responses: Mutex::new(ResponseStore::new(config.responses_max)),
            siblings: OnceLock::new(),
            kv_events: OnceLock::new(),
            tasks: runtime.tasks.clone(),
            stop: runtime.stop.clone(),
            listen: runtime.listen,
            condition: Mutex::new(condition),
            replica_port: tokio::sync::Mutex::default(),
            freeze_gate: FreezeGate::default(),
        })
    }

    /// Starts to serve.
    pub(crate) async fn start(self: &Arc<Self>, listener: TcpListener) {
        let stop = self.stop.clone();
        self.tasks.spawn(Arc::clone(&self.driver).run(stop));
        self.replica_port.lock().await.serve(self, listener);
    }

    /// Publishes KV events at a port of the replica's own address.
    pub(crate) async fn publish_kv_events(&self, port: u16) -> std::io::Result<()> {
        let publisher = KvPublisher::new();
        let address = SocketAddr::new(self.address.ip(), port);
        let address = publisher.listen(address, &self.tasks, self.stop.clone()).await?;
        self.driver.publish_to(publisher.clone());
        self.kv_events.get_or_init(|| (address, publisher));
        Ok(())
    }

    /// Returns the current fault.
    pub(crate) fn fault(&self) -> Fault {
        self.condition().fault
    }

    /// Returns the form of replies.
    pub(crate) fn options(&self) -> ReplyOptions {
        self.condition().options
    }

    /// Changes the form of the replies to later requests.
    pub(crate) fn set_options(&self, options: ReplyOptions) {
        self.condition().options = options;
    }

    /// Returns the current set of connections, all of which a crash ends.
    pub(crate) fn life(&self) -> Life {
        self.condition().life.clone()
    }

    /// Returns true with this probability: the fault hits the request.
    pub(crate) fn is_hit(&self, probability: f64) -> bool {
        self.condition().rng.f64() < probability
    }

    pub(crate) fn responses(&self) -> MutexGuard<'_, ResponseStore> {
        self.responses.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns replica `index` of this process; `None` if there is none.
    pub(crate) fn sibling(&self, index: u16) -> Option<Arc<Self>> {
        self.siblings.get()?.get(usize::from(index))?.upgrade()
    }

    /// Sets a fault and waits until it is in force. Returns the number of the change.
    ///
    /// # Errors
    /// Returns the errors of [`ReplicaHandle::set_fault`].
    pub(crate) async fn set_fault(self: &Arc<Self>, fault: Fault) -> Result<u64, FaultError> {
        fault.check()?;
        // Held to the end, so that two faults are not set at the same time.
        let mut replica_port = self.replica_port.lock().await;
        if self.stop.is_cancelled() {
            return Err(FaultError::ShuttingDown);
        }
        let change = self.note(fault);
        self.driver.slow_down(fault.slowdown());
        self.freeze_gate.shut(fault == Fault::Freeze);
        match fault {
            Fault::Crash => {
                replica_port.close(self.address).await?;
                self.crash().await;
            }
            Fault::Refuse => replica_port.close(self.address).await?,
            // The fault before may have closed the port.
            Fault::None
            | Fault::Hang
            | Fault::Freeze
            | Fault::Slow { .. }
            | Fault::Garbage
            | Fault::Status { .. }
            | Fault::Cut { .. }
            | Fault::Stall { .. }
            | Fault::Abort { .. }
            | Fault::DoneEarly { .. }
            | Fault::Empty
            | Fault::Die { .. }
            | Fault::Draining => replica_port.open(self)?,
        }
        Ok(change)
    }

    /// Crashes the replica after `after`, as [`Fault::Die`] demands, unless that fault has ended by
    /// then. A time limit of the fault ends the crash too.
    pub(crate) fn die_later(self: &Arc<Self>, after: Duration) {
        let replica = Arc::clone(self);
        self.tasks.spawn(async move {
            tokio::time::sleep(after).await;
            let mut replica_port = replica.replica_port.lock().await;
            if replica.stop.is_cancelled() || !matches!(replica.fault(), Fault::Die { .. }) {
                return;
            }
            // Not a new change, so that `heal_later` still finds its own.
            replica.condition().fault = Fault::Crash;
            if let Err(error) = replica_port.close(replica.address).await {
                tracing::warn!(%error, replica = replica.index, "the port is lost");
            }
            replica.crash().await;
        });
    }

    /// Heals the replica after `after`, unless its fault has changed since `change`.
    pub(crate) fn heal_later(self: &Arc<Self>, change: u64, after: Duration) {
        let replica = Arc::clone(self);
        self.tasks.spawn(async move {
            tokio::select! {
                () = replica.stop.cancelled() => return,
                () = tokio::time::sleep(after) => {}
            }
            // Another fault was set in between, and must not be healed by this one.
            if replica.condition().changes != change {
                return;
            }
            if let Err(error) = replica.set_fault(Fault::None).await {
                tracing::warn!(%error, replica = replica.index, "the replica could not be healed");
            }
        });
    }

    /// Waits until the port is closed. `stop` must have been cancelled.
    pub(crate) async fn stopped(&self) {
        self.replica_port.lock().await.remove().await;
    }

    pub(crate) fn stats(&self) -> ReplicaStats {
        let counts = self.ledger.counts();
        let engine = self.driver.stats();
        ReplicaStats {
            received: counts.received,
            started: counts.started,
            finished: counts.finished,
            aborted: counts.aborted,
            rejected: counts.rejected,
            authorization_seen: counts.authorization_seen,
            running: engine.running,
            waiting: engine.waiting,
            engine,
            last_requests: self.ledger.records(),
        }
    }

    fn note(&self, fault: Fault) -> u64 {
        let mut condition = self.condition();
        condition.fault = fault;
        condition.changes += 1;
        condition.changes
    }

    async fn crash(&self) {
        let life = {
            let mut condition = self.condition();
            std::mem::replace(&mut condition.life, Life::new(&self.stop))
        };
        // Connections end first, so that no request sees the restarted engine.
        life.end().await;
        self.driver.restart();
        self.responses().clear();
    }

    fn condition(&self) -> MutexGuard<'_, Condition> {
        self.condition.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn instance(address: SocketAddr) -> u64 {
    let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let nanos = u64::try_from(since_epoch.as_nanos()).unwrap_or(u64::MAX);
    // The port distinguishes replicas that were made in the same moment.
    fastrand::Rng::with_seed(nanos ^ u64::from(address.port()) << 48).u64(..)
}

/// Handle of a replica of a running [`crate::Emulator`]. Cheap to clone.
#[derive(Clone, Debug)]
pub struct ReplicaHandle(pub(crate) Arc<EmulatedReplica>);

impl ReplicaHandle {
    /// Returns the address of the replica, which a crash does not change.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.0.address
    }

    /// Returns the address at which KV events are published; `None` if they are not.
    #[must_use]
    pub fn kv_events_address(&self) -> Option<SocketAddr> {
        self.0.kv_events.get().map(|(address, _)| *address)
    }

    /// Returns the number of subscribers to KV events, and of events since the process started; zeros
    /// without a publisher.
    #[must_use]
    pub fn kv_events_counts(&self) -> (usize, u64) {
        self.0.kv_events.get().map(|(_, publisher)| publisher.counts()).unwrap_or_default()
    }

    /// Returns the base URL, e.g. `http://127.0.0.1:9101`.
    #[must_use]
    pub fn url(&self) -> String {
        format!("http://{}", self.0.address)
    }

    /// Sets or removes a fault, and waits until that is in force: after `Crash` every connection is
    /// reset and the port refuses connections; after `None` it accepts them again.
    ///
    /// # Errors
    /// Returns an error if a number is out of range, if another process has taken the port in
    /// between, or if the emulator is shutting down.
    pub async fn set_fault(&self, fault: Fault) -> Result<(), FaultError> {
        self.0.set_fault(fault).await.map(|_| ())
    }

    /// Returns the current fault.
    #[must_use]
    pub fn fault(&self) -> Fault {
        self.0.fault()
    }

    /// Returns the counters and the last requests.
    #[must_use]
    pub fn stats(&self) -> ReplicaStats {
        self.0.stats()
    }

    /// Returns the tokens of the requests that have ended.
    #[must_use]
    pub fn usage(&self) -> UsageReport {
        self.0.ledger.usage()
    }

    /// Changes the form of the replies to later requests.
    pub fn set_options(&self, options: ReplyOptions) {
        self.0.set_options(options);
    }

    /// Returns the form of replies.
    #[must_use]
    pub fn options(&self) -> ReplyOptions {
        self.0.options()
    }

    /// Returns the headers of the last inference request; empty before the first.
    #[must_use]
    pub fn last_headers(&self) -> HeaderMap {
        self.0.ledger.last_headers().as_ref().clone()
    }
}
