//! State that all client connections of a node share: slots, memory, and the drain signal.

use std::io;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use spillway_prefix::PrefixHasher;
use spillway_transport::{Limits, Memory, RestReader, rest_bytes_max};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::body_shares::{BodyHolder, BodyShares};
use crate::close_reason::CloseReason;
use crate::shares::{Share, Shares};

/// State of all client connections. All of it is read without waiting.
#[derive(Debug)]
pub struct FrontDoor {
    limits: Limits,
    memory: Memory,
    /// Connections of each client.
    clients: Arc<Shares>,
    /// Bodies in memory of each client.
    bodies: BodyShares,
    counters: ConnectionCounters,
    is_draining: AtomicBool,
    draining: CancellationToken,
    /// Client connections and their requests: draining waits for these.
    tracker: TaskTracker,
    started: Instant,
    rests: Arc<RestReader>,
}

/// Counters that connections keep.
#[derive(Debug, Default)]
struct ConnectionCounters {
    open: AtomicUsize,
    body_bytes: AtomicU64,
    closed_full: AtomicU64,
    closed_client: AtomicU64,
    closed_memory: AtomicU64,
    closed_handshake: AtomicU64,
    closed_slow_head: AtomicU64,
    closed_idle: AtomicU64,
    closed_stalled: AtomicU64,
    closed_resets: AtomicU64,
    closed_frames: AtomicU64,
    streams_stalled: AtomicU64,
    accepts_failed: Occurrences,
    shortages: Occurrences,
}

/// Time between two lines in the log about one thing: without file descriptors all fails.
const LINE_INTERVAL: Duration = Duration::from_secs(10);

/// Occurrences of which the log has a line now and then.
#[derive(Debug, Default)]
struct Occurrences {
    /// Occurrences since the last line.
    times: AtomicU64,
    /// Milliseconds after the door's start at which the next line may be written.
    quiet_ms: AtomicU64,
}

impl Occurrences {
    /// Counts one. Returns how many there were since the last line, if another is due.
    fn note(&self, now: Duration) -> Option<u64> {
        self.times.fetch_add(1, Ordering::Relaxed);
        let until_ms = u64::try_from((now + LINE_INTERVAL).as_millis()).unwrap_or(u64::MAX);
        let is_due = now >= Duration::from_millis(self.quiet_ms.load(Ordering::Relaxed));
        is_due.then(|| {
            self.quiet_ms.store(until_ms, Ordering::Relaxed);
            self.times.swap(0, Ordering::Relaxed)
        })
    }
}

impl FrontDoor {
    /// Returns an open door without connections.
    #[must_use]
    pub fn new(limits: Limits) -> Self {
        let (draining, tracker) = (CancellationToken::new(), TaskTracker::new());
        Self {
            rests: Arc::new(RestReader::new(&tracker, &draining, rest_bytes_max(&limits))),
            memory: Memory::new(limits.read_ahead_bytes_total_max),
            clients: Arc::new(Shares::new(limits.connections_per_client_max)),
            bodies: BodyShares::default(),
            counters: ConnectionCounters::default(),
            is_draining: AtomicBool::new(false),
            draining,
            tracker,
            started: Instant::now(),
            limits,
        }
    }

    /// Returns the bounds on clients.
    #[must_use]
    pub fn limits(&self) -> &Limits {
        &self.limits
    }

    /// Returns the memory budget. The task that measures memory calls [`Memory::note`].
    #[must_use]
    pub fn memory(&self) -> &Memory {
        &self.memory
    }

    /// Returns the tracker of client connections and their requests.
    #[must_use]
    pub fn tracker(&self) -> &TaskTracker {
        &self.tracker
    }

    /// Returns the reader of bodies that requests over HTTP/2 leave unread.
    #[must_use]
    pub fn rests(&self) -> &Arc<RestReader> {
        &self.rests
    }

    /// Returns the signal that the node drains.
    #[must_use]
    pub fn draining(&self) -> &CancellationToken {
        &self.draining
    }

    /// Stops accepting, lets requests finish, and asks HTTP/2 clients to go elsewhere.
    pub fn start_draining(&self) {
        // The flag first, since the tasks that the signal wakes read it.
        self.is_draining.store(true, Ordering::Relaxed);
        self.draining.cancel();
        // Only a closed tracker ends its wait with the last task.
        self.tracker.close();
    }

    /// Returns true if [`FrontDoor::start_draining`] was called.
    #[must_use]
    pub fn is_draining(&self) -> bool {
        self.is_draining.load(Ordering::Relaxed)
    }

    /// Returns once every connection and request has ended. Call it after
    /// [`FrontDoor::start_draining`].
    pub async fn drained(&self) {
        self.tracker.wait().await;
    }

    /// Returns a slot for one more client connection, with one of the client's own slots if its
    /// address is known. Counts the refusal and returns `None` if there is no slot.
    pub fn admit_connection(self: &Arc<Self>, client: Option<IpAddr>) -> Option<ConnectionPermit> {
        let open = self.counters.open.fetch_add(1, Ordering::Relaxed) + 1;
        // Created before the checks: dropping the permit takes the count back.
        let mut permit = ConnectionPermit { door: Arc::clone(self), _share: None };
        if open > self.limits.connections_max {
            self.counters.closed_full.fetch_add(1, Ordering::Relaxed);
            return None;
        }
        if !self.memory.admits_connection() {
            self.counters.closed_memory.fetch_add(1, Ordering::Relaxed);
            return None;
        }
        if let Some(client) = client {
            permit._share = Some(self.admit_client(client)?);
        }
        Some(permit)
    }

    /// Returns one of a client's own slots for connections. Counts the refusal and returns `None`
    /// if all are in use.
    pub fn admit_client(&self, client: IpAddr) -> Option<Share> {
        let share = self.clients.take(client);
        if share.is_none() {
            self.counters.closed_client.fetch_add(1, Ordering::Relaxed);
        }
        share
    }

    /// Returns the holder under which a client's bodies in memory are counted.
    pub fn body_holder(&self, client: IpAddr, hasher: &PrefixHasher) -> BodyHolder {
        self.bodies.holder(client, hasher)
    }

    /// Returns how many client connections are open now.
    #[must_use]
    pub fn connections(&self) -> u64 {
        self.counters.open.load(Ordering::Relaxed) as u64
    }

    /// Returns how many bytes of request bodies are held now.
    #[must_use]
    pub fn body_bytes(&self) -> u64 {
        self.counters.body_bytes.load(Ordering::Relaxed)
    }

    /// Adds `more` bytes to the bodies of `holder`; returns the bytes of all bodies, and those of
    /// this client.
    pub(crate) fn hold_body(&self, holder: Option<BodyHolder>, more: u64) -> (u64, u64) {
        let all = self.counters.body_bytes.fetch_add(more, Ordering::Relaxed) + more;
        (all, holder.map_or(0, |holder| self.bodies.add(holder, more)))
    }

    /// Takes back what [`FrontDoor::hold_body`] has added for one body.
    pub(crate) fn release_body(&self, holder: Option<BodyHolder>, bytes: u64) {
        self.counters.body_bytes.fetch_sub(bytes, Ordering::Relaxed);
        if let Some(holder) = holder {
            self.bodies.give_back(holder, bytes);
        }
    }

    /// Returns client connections that the gateway has closed since start, by reason.
    #[must_use]
    pub fn connections_closed(&self) -> Vec<(&'static str, u64)> {
        let total = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let counters = &self.counters;
        vec![
            ("full", total(&counters.closed_full)),
            ("client", total(&counters.closed_client)),
            ("memory", total(&counters.closed_memory)),
            ("handshake", total(&counters.closed_handshake)),
            ("slow_head", total(&counters.closed_slow_head)),
            ("idle", total(&counters.closed_idle)),
            ("stalled", total(&counters.closed_stalled)),
            ("resets", total(&counters.closed_resets)),
            ("frames", total(&counters.closed_frames)),
        ]
    }

    /// Returns streams of HTTP/2 connections that the gateway has closed since start, by reason.
    /// The connections went on.
    #[must_use]
    pub fn streams_closed(&self) -> [(&'static str, u64); 1] {
        [("stalled", self.counters.streams_stalled.load(Ordering::Relaxed))]
    }

    /// Logs now and then that accepting failed.
    pub(crate) fn accept_failed(&self, error: &io::Error) {
        if let Some(times) = self.counters.accepts_failed.note(self.started.elapsed()) {
            tracing::warn!(%error, times, "connections of clients can't be accepted");
        }
    }

    /// Logs now and then that this machine has no file descriptor, memory or port for a connection to
    /// a replica.
    pub fn note_shortage(&self, error: &io::Error) {
        if let Some(times) = self.counters.shortages.note(self.started.elapsed()) {
            tracing::warn!(%error, times, "this machine can't open connections to replicas");
        }
    }

    pub(crate) fn closed_in_handshake(&self) {
        self.counters.closed_handshake.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn closed_stream(&self) {
        self.counters.streams_stalled.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn closed_by_watchdog(&self, reason: CloseReason) {
        let counter = match reason {
            CloseReason::SlowHead => &self.counters.closed_slow_head,
            CloseReason::Idle => &self.counters.closed_idle,
            CloseReason::Stalled => &self.counters.closed_stalled,
            CloseReason::Resets => &self.counters.closed_resets,
            CloseReason::Frames => &self.counters.closed_frames,
        };
        counter.fetch_add(1, Ordering::Relaxed);
    }
}

/// Slot of one client connection, given back when dropped.
#[derive(Debug)]
pub struct ConnectionPermit {
    door: Arc<FrontDoor>,
    /// Slot among the client's own connections.
    _share: Option<Share>,
}

impl Drop for ConnectionPermit {
    fn drop(&mut self) {
        self.door.counters.open.fetch_sub(1, Ordering::Relaxed);
    }
}
