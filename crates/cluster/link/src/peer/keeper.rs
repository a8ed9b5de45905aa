//! Keeper of one connection of one kind to one peer. One task owns all of its state: it takes one
//! event at a time and then publishes the connection to use.

use std::future::{Future, pending};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use spillway_tasks::restarted;
use tokio::sync::{mpsc, watch};
use tokio::time::sleep_until;

use super::Peer;
use super::back_off::BackOff;
use super::dial::{DialError, dial};
use super::live::{Arrival, ConnectionOrigin, LiveConnection};
use super::watch::AckWatch;
use crate::code::CloseCode;
use crate::config::{PeerConfig, ms};
use crate::kind::Kind;
use crate::serve;
use crate::shared::LinkShared;
use crate::tls::{HandshakeError, peer_certificate};

/// Most connections of one kind to one peer at a time: the one in use and those that only finish
/// their requests. A healthy peer never needs a third.
const LIVES_MAX: usize = 4;
/// Interval of checks for connections that must be closed without an event of their own.
const SWEEP: Duration = Duration::from_millis(250);
/// Age at which a connection counts as one that has worked. A younger one that ends counts as a
/// failed dial, because a peer that refuses a certificate closes a connection that was set up.
const STABLE: Duration = Duration::from_secs(2);
/// Time, besides two round trips, for which the node with the higher name lets the other node dial
/// first. Without it every start would make double connections.
const HEAD_START: Duration = Duration::from_millis(50);

/// Creates a peer and starts the keepers of its connections.
pub(crate) fn start(shared: &Arc<LinkShared>, config: PeerConfig) -> Arc<Peer> {
    let (peer, arrivals) = Peer::new(config, shared.stop.child_token());
    let peer = Arc::new(peer);
    for (kind, arrivals) in Kind::ALL.into_iter().zip(arrivals) {
        let keeper = Keeper::new(Arc::clone(shared), Arc::clone(&peer), kind, arrivals);
        let keeping = shared.watch.clone().vital("connections of a peer", keeper.run());
        shared.tracker.spawn_on(keeping, &shared.runtime);
    }
    peer
}

/// Keeper of one connection of one kind to one peer.
struct Keeper {
    shared: Arc<LinkShared>,
    peer: Arc<Peer>,
    kind: Kind,
    arrivals: mpsc::Receiver<Arrival>,
    ended: (mpsc::Sender<u64>, mpsc::Receiver<u64>),
    revocations: watch::Receiver<u64>,
    held: Vec<Held>,
    dialling: Dialling,
    back_off: BackOff,
    random: fastrand::Rng,
    serial: u64,
}

/// Connection with its role and its watch.
struct Held {
    live: Arc<LiveConnection>,
    role: PeerRole,
    watch: AckWatch,
}

/// Role of a connection.
#[derive(Clone, Copy, Debug, PartialEq)]
enum PeerRole {
    /// New requests use this connection. // => Retiring
    Current,
    /// The connection only finishes its requests. // => Current, if the other one ends first
    Retiring(Instant),
}

/// State of dialling the peer.
enum Dialling {
    /// No dial is needed, because there is a connection. // => Due
    Not,
    /// The next dial begins at that time. // => (Underway | Not)
    Due(Instant),
    /// A dial is under way. // => (Not | Due)
    Underway(Pin<Box<dyn Future<Output = Result<Arrival, DialError>> + Send>>),
}

enum PeerEvent {
    Stop,
    Ended(u64),
    Arrived(Arrival),
    Dialled(Result<Arrival, DialError>),
    DialDue,
    Sweep,
    Revoked,
}

impl Keeper {
    fn new(
        shared: Arc<LinkShared>,
        peer: Arc<Peer>,
        kind: Kind,
        arrivals: mpsc::Receiver<Arrival>,
    ) -> Self {
        let mut keeper = Self {
            back_off: BackOff::new(&shared.limits),
            revocations: shared.revocations.subscribe(),
            shared,
            peer,
            kind,
            arrivals,
            ended: mpsc::channel(2 * LIVES_MAX),
            held: Vec::new(),
            dialling: Dialling::Not,
            random: fastrand::Rng::new(),
            serial: 0,
        };
        keeper.dial_in(Duration::ZERO);
        keeper
    }

    /// Runs until the peer is removed or the link ends, then closes all connections.
    async fn run(mut self) {
        loop {
            match self.next().await {
                PeerEvent::Stop => break,
                PeerEvent::Ended(serial) => self.forget(serial),
                PeerEvent::Arrived(arrival) => self.adopt(arrival),
                PeerEvent::Dialled(Ok(arrival)) => {
                    self.dialling = Dialling::Not;
                    self.adopt(arrival);
                }
                PeerEvent::Dialled(Err(fault)) => self.dial_failed(&fault),
                PeerEvent::DialDue => self.dial(),
                PeerEvent::Sweep => self.sweep(),
                PeerEvent::Revoked => self.close_revoked(),
            }
        }
        // If the link goes on, the keeper stops only because its peer was removed.
        let code = if self.shared.stop.is_cancelled() {
            CloseCode::Abandoned
        } else {
            CloseCode::NotMember
        };
        for held in &self.held {
            held.live.connection.close(code.number(), b"");
        }
        self.held.clear();
        self.publish();
    }

    async fn next(&mut self) -> PeerEvent {
        let sweep = self.needs_sweep().then(|| Instant::now() + SWEEP);
        tokio::select! {
            // The order matters: an ended connection is forgotten before a new one is adopted.
            biased;
            () = self.peer.stop.cancelled() => PeerEvent::Stop,
            // An error means that the link ends; the branch above handles that.
            Ok(()) = self.revocations.changed() => PeerEvent::Revoked,
            Some(serial) = self.ended.1.recv() => PeerEvent::Ended(serial),
            Some(arrival) = self.arrivals.recv() => PeerEvent::Arrived(arrival),
            event = dialling(&mut self.dialling) => event,
            () = at(sweep) => PeerEvent::Sweep,
        }
    }

    /// Closes connections whose certificates were revoked.
    fn close_revoked(&self) {
        for held in &self.held {
            if is_revoked(&self.shared, &held.live.connection) {
                tracing::warn!(peer = %self.peer.identity, "its certificate was revoked");
                held.live.connection.close(CloseCode::NotMember.number(), b"");
            }
        }
    }

    /// Adopts a new connection.
    fn adopt(&mut self, arrival: Arrival) {
        // The certificate may have been revoked while the connection was set up.
        if is_revoked(&self.shared, &arrival.connection) {
            arrival.connection.close(CloseCode::NotMember.number(), b"");
            if self.held.is_empty() && matches!(self.dialling, Dialling::Not) {
                let wait = self.back_off.after_failure(&mut self.random);
                self.dial_in(wait);
            }
            return;
        }
        let origin = arrival.origin;
        self.serial += 1;
        let we_are_lower = self.shared.me.node() < self.peer.identity.node();
        // True if the node with the lower name has dialled.
        let by_lower = (origin == ConnectionOrigin::Us) == we_are_lower;
        let live = Arc::new(LiveConnection::new(arrival, by_lower, self.serial));
        tracing::debug!(peer = %self.peer.identity, kind = %self.kind, ?origin, "connected");
        let now = live.since;
        let double = ms(self.shared.limits.double_ms);
        let role = match self.held.iter_mut().find(|held| held.role == PeerRole::Current) {
            Some(current) if !current.live.is_displaced_by(&live, double) => {
                PeerRole::Retiring(now)
            }
            Some(current) => {
                current.role = PeerRole::Retiring(now);
                PeerRole::Current
            }
            None => PeerRole::Current,
        };
        let watch = AckWatch::new(&live.connection, now);
        self.held.push(Held { live: Arc::clone(&live), role, watch });
        // The connection makes a later dial needless. A dial under way goes on, because the peer
        // may be about to close its own connection in favour of it.
        if matches!(self.dialling, Dialling::Due(_)) {
            self.dialling = Dialling::Not;
        }
        self.close_surplus();
        self.close_dead(live.process);
        self.publish();
        let (shared, from) = (Arc::clone(&self.shared), self.peer.identity.clone());
        let (kind, ended) = (self.kind, self.ended.0.clone());
        let reading = restarted("reader of a peer", move || {
            let (shared, live) = (Arc::clone(&shared), Arc::clone(&live));
            serve::read(shared, from.clone(), kind, live, ended.clone())
        });
        self.shared.tracker.spawn_on(reading, &self.shared.runtime);
    }

    /// Closes the oldest retiring connection if there are too many.
    fn close_surplus(&self) {
        let retiring = |held: &&Held| held.role != PeerRole::Current;
        if self.held.len() > LIVES_MAX
            && let Some(held) =
                self.held.iter().filter(retiring).min_by_key(|held| held.live.serial)
        {
            held.live.connection.close(CloseCode::TooMany.number(), b"");
        }
    }

    /// Closes connections to an ended process of the peer, which can't answer any more.
    fn close_dead(&self, process: u64) {
        for held in self.held.iter().filter(|held| held.live.process != process) {
            tracing::info!(peer = %self.peer.identity, kind = %self.kind, "the peer has restarted");
            held.live.connection.close(CloseCode::Restarted.number(), b"");
        }
    }

    /// Removes a connection that has ended. If it was in use, another one is used instead; if there
    /// is none, the peer is dialled.
    fn forget(&mut self, serial: u64) {
        let Some(at) = self.held.iter().position(|held| held.live.serial == serial) else { return };
        let gone = self.held.swap_remove(at);
        let reason = gone.live.connection.close_reason();
        let age = gone.live.since.elapsed();
        tracing::debug!(peer = %self.peer.identity, kind = %self.kind, ?reason, ?age, "disconnected");
        if gone.role == PeerRole::Current {
            let newest = self.held.iter_mut().max_by_key(|held| held.live.serial);
            if let Some(newest) = newest {
                newest.role = PeerRole::Current;
            }
        }
        if self.held.is_empty() && matches!(self.dialling, Dialling::Not) {
            let wait = if age >= STABLE {
                self.back_off.after_loss(&mut self.random)
            } else {
                if let Some(reason) = reason {
                    self.peer.slot(self.kind).note_fault(&reason);
                }
                self.back_off.after_failure(&mut self.random)
            };
            self.dial_in(wait);
        }
        self.publish();
    }

    /// Dials after `wait`; the node with the higher name a little later, so that usually only one
    /// of the two dials.
    fn dial_in(&mut self, wait: Duration) {
        let mut wait = wait;
        // After a failure neither node waits: perhaps only this direction of dialling works.
        if self.shared.me.node() > self.peer.identity.node() && self.back_off.failures() == 0 {
            let default_ms = self.shared.transport.rtt_default_ms;
            let rtt_ms = self.peer.target.load().rtt_ms.unwrap_or(default_ms);
            wait += HEAD_START + 2 * ms(rtt_ms);
        }
        self.dialling = Dialling::Due(Instant::now() + wait);
    }

    fn dial(&mut self) {
        self.peer.slot(self.kind).dials.fetch_add(1, Ordering::Relaxed);
        self.dialling = Dialling::Underway(Box::pin(dial(
            Arc::clone(&self.shared),
            Arc::clone(&self.peer),
            self.kind,
            self.back_off.failures(),
        )));
    }

    fn dial_failed(&mut self, fault: &DialError) {
        tracing::debug!(peer = %self.peer.identity, kind = %self.kind, %fault, "dialling failed");
        if let Some(reason) = fault.refused_by_peer() {
            let text = format!("by {} {reason}", self.peer.identity);
            if self.shared.refusals.is_news(&text, Instant::now()) {
                let (peer, me) = (&self.peer.identity, &self.shared.me);
                let address = self.peer.target.load().address.clone();
                tracing::warn!(%peer, address, reason, "a peer refuses this node's certificate, {me}: \
                    its log says what it expected");
            }
        }
        self.peer.slot(self.kind).note_fault(fault);
        let wait = self.back_off.after_failure(&mut self.random);
        self.dialling = Dialling::Not;
        // The peer may have connected in the meantime.
        if self.held.is_empty() {
            self.dial_in(wait);
        }
    }

    fn needs_sweep(&self) -> bool {
        let retiring = self.held.iter().any(|held| held.role != PeerRole::Current);
        retiring || (self.kind == Kind::Control && !self.held.is_empty())
    }

    /// Closes retiring connections without requests, and control connections whose packets do not
    /// arrive at the peer.
    fn sweep(&mut self) {
        let now = Instant::now();
        let retire = ms(self.shared.limits.retire_ms);
        let deaf = ms(self.shared.transport.control_idle_ms);
        for held in &mut self.held {
            let connection = &held.live.connection;
            let unused = match held.role {
                PeerRole::Current => false,
                // Only its dialler closes a retiring connection, because the other node can't know
                // if a request is in transit.
                PeerRole::Retiring(since) => {
                    held.live.origin == ConnectionOrigin::Us
                        && held.live.streams() == 0
                        && now.saturating_duration_since(since) > retire
                }
            };
            if unused {
                connection.close(CloseCode::Double.number(), b"");
            } else if self.kind == Kind::Control && held.watch.silence(connection, now) > deaf {
                connection.close(CloseCode::Deaf.number(), b"");
            }
        }
    }

    /// Publishes the connection to use.
    fn publish(&self) {
        let current = self.held.iter().find(|held| held.role == PeerRole::Current);
        self.peer.slot(self.kind).publish(current.map(|held| Arc::clone(&held.live)));
    }
}

fn is_revoked(shared: &LinkShared, connection: &quinn::Connection) -> bool {
    let certificate = peer_certificate(connection);
    certificate
        .is_some_and(|it| shared.members.check_certificate(&it) == Err(HandshakeError::Revoked))
}

/// Waits for the next event of dialling; forever while no dial is needed.
async fn dialling(dialling: &mut Dialling) -> PeerEvent {
    match dialling {
        Dialling::Not => pending().await,
        Dialling::Due(due) => {
            sleep_until((*due).into()).await;
            PeerEvent::DialDue
        }
        Dialling::Underway(attempt) => PeerEvent::Dialled(attempt.await),
    }
}

async fn at(moment: Option<Instant>) {
    match moment {
        Some(moment) => sleep_until(moment.into()).await,
        None => pending().await,
    }
}
