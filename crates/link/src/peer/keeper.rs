//! Keeps one connection of one kind to one peer warm. One task owns all of its state: it takes one
//! event at a time and then publishes which connection is to be used.

use std::future::{Future, pending};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use tokio::sync::{mpsc, watch};
use tokio::time::sleep_until;

use super::back_off::BackOff;
use super::dial::{DialFault, dial};
use super::live::{Live, Origin};
use super::watch::AckWatch;
use super::{Arrival, Peer};
use crate::code::CloseCode;
use crate::config::ms;
use crate::kind::Kind;
use crate::serve;
use crate::shared::Shared;
use crate::tls::{Refusal, peer_certificate};

/// Connections of one kind to one peer at a time: the one in use and those that empty. A peer in
/// order never needs a third.
const LIVES_MAX: usize = 4;
/// How often connections are looked at that have to be closed without an event that says so.
const SWEEP: Duration = Duration::from_millis(250);
/// A connection that stood for so long has worked; one that did not counts as a failed dial, since
/// peers that refuse a certificate close what seemed to stand.
const STABLE: Duration = Duration::from_secs(2);
/// What the node with the higher name leaves the other one to dial first, besides two round trips.
/// Without it every start would make doubles.
const HEAD_START: Duration = Duration::from_millis(50);

/// Keeps one connection of one kind to one peer warm.
pub(super) struct Keeper {
    shared: Arc<Shared>,
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

/// A connection and what is done with it.
struct Held {
    live: Arc<Live>,
    role: Role,
    watch: AckWatch,
}

/// What a connection is for.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Role {
    /// What is new goes there. // => Retiring
    Current,
    /// It only finishes what it has. // => Current, if the other one ends first
    Retiring(Instant),
}

/// Whether the peer is being dialled.
enum Dialling {
    /// There is a connection. // => Due
    Not,
    /// It will be then. // => (Underway | Not)
    Due(Instant),
    /// It is. // => (Not | Due)
    Underway(Pin<Box<dyn Future<Output = Result<Arrival, DialFault>> + Send>>),
}

enum Event {
    Stop,
    Ended(u64),
    Arrived(Arrival),
    Dialled(Result<Arrival, DialFault>),
    DialDue,
    Sweep,
    Revoked,
}

impl Keeper {
    pub(super) fn new(
        shared: Arc<Shared>,
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

    /// Runs until the peer is removed or the link ends; then closes what stands.
    pub(super) async fn run(mut self) {
        loop {
            match self.next().await {
                Event::Stop => break,
                Event::Ended(serial) => self.forget(serial),
                Event::Arrived(arrival) => self.adopt(arrival),
                Event::Dialled(Ok(arrival)) => {
                    self.dialling = Dialling::Not;
                    self.adopt(arrival);
                }
                Event::Dialled(Err(fault)) => self.dial_failed(&fault),
                Event::DialDue => self.dial(),
                Event::Sweep => self.sweep(),
                Event::Revoked => self.close_revoked(),
            }
        }
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

    async fn next(&mut self) -> Event {
        let sweep = self.needs_sweep().then(|| Instant::now() + SWEEP);
        tokio::select! {
            biased;
            () = self.peer.stop.cancelled() => Event::Stop,
            // An error means that the link ends, which is said above.
            Ok(()) = self.revocations.changed() => Event::Revoked,
            Some(serial) = self.ended.1.recv() => Event::Ended(serial),
            Some(arrival) = self.arrivals.recv() => Event::Arrived(arrival),
            event = dialling(&mut self.dialling) => event,
            () = at(sweep) => Event::Sweep,
        }
    }

    /// Closes connections by certificates that were revoked.
    fn close_revoked(&self) {
        for held in &self.held {
            if is_revoked(&self.shared, &held.live.connection) {
                tracing::warn!(peer = %self.peer.identity, "its certificate was revoked");
                held.live.connection.close(CloseCode::NotMember.number(), b"");
            }
        }
    }

    /// Takes in a connection that stands.
    fn adopt(&mut self, arrival: Arrival) {
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
        let by_lower = (origin == Origin::Us) == we_are_lower;
        let live = Arc::new(Live::new(arrival, by_lower, self.serial));
        tracing::debug!(peer = %self.peer.identity, kind = %self.kind, ?origin, "connected");
        let now = live.since;
        let double = ms(self.shared.limits.double_ms);
        let role = match self.held.iter_mut().find(|held| held.role == Role::Current) {
            Some(current) if !current.live.is_displaced_by(&live, double) => Role::Retiring(now),
            Some(current) => {
                current.role = Role::Retiring(now);
                Role::Current
            }
            None => Role::Current,
        };
        let watch = AckWatch::new(&live.connection, now);
        self.held.push(Held { live: Arc::clone(&live), role, watch });
        // Whoever was quicker: there is no need to dial any more. A dial under way goes on, since
        // the peer may be about to give up its own in its favour.
        if matches!(self.dialling, Dialling::Due(_)) {
            self.dialling = Dialling::Not;
        }
        self.close_surplus();
        self.close_dead(live.process);
        self.publish();
        let ended = self.ended.0.clone();
        let reading = serve::read(
            Arc::clone(&self.shared),
            self.peer.identity.clone(),
            (self.kind, live),
            ended,
        );
        self.shared.tracker.spawn_on(reading, &self.shared.runtime);
    }

    /// Closes the oldest that only finishes what it has, if there are too many.
    fn close_surplus(&self) {
        let retiring = |held: &&Held| held.role != Role::Current;
        if self.held.len() > LIVES_MAX
            && let Some(held) =
                self.held.iter().filter(retiring).min_by_key(|held| held.live.serial)
        {
            held.live.connection.close(CloseCode::TooMany.number(), b"");
        }
    }

    /// Gives up what is open with a process of the peer that has ended: nobody will answer.
    fn close_dead(&self, process: u64) {
        for held in self.held.iter().filter(|held| held.live.process != process) {
            tracing::info!(peer = %self.peer.identity, kind = %self.kind, "the peer has restarted");
            held.live.connection.close(CloseCode::Restarted.number(), b"");
        }
    }

    /// A connection has ended. If it was the one in use, another one that stands is used instead;
    /// if there is none, the peer is dialled.
    fn forget(&mut self, serial: u64) {
        let Some(at) = self.held.iter().position(|held| held.live.serial == serial) else { return };
        let gone = self.held.swap_remove(at);
        let reason = gone.live.connection.close_reason();
        let age = gone.live.since.elapsed();
        tracing::debug!(peer = %self.peer.identity, kind = %self.kind, ?reason, ?age, "disconnected");
        if gone.role == Role::Current {
            let newest = self.held.iter_mut().max_by_key(|held| held.live.serial);
            if let Some(newest) = newest {
                newest.role = Role::Current;
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

    /// Dials after `wait`; the node with the higher name a little later, so that as a rule only
    /// one of the two does.
    fn dial_in(&mut self, wait: Duration) {
        let mut wait = wait;
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

    fn dial_failed(&mut self, fault: &DialFault) {
        tracing::debug!(peer = %self.peer.identity, kind = %self.kind, %fault, "dialling failed");
        self.peer.slot(self.kind).note_fault(fault);
        let wait = self.back_off.after_failure(&mut self.random);
        self.dialling = Dialling::Not;
        if self.held.is_empty() {
            self.dial_in(wait);
        }
    }

    fn needs_sweep(&self) -> bool {
        let retiring = self.held.iter().any(|held| held.role != Role::Current);
        retiring || (self.kind == Kind::Control && !self.held.is_empty())
    }

    /// Closes what is empty and not used any more, and control connections on which nothing
    /// arrives at the peer.
    fn sweep(&mut self) {
        let now = Instant::now();
        let retire = ms(self.shared.limits.retire_ms);
        let deaf = ms(self.shared.transport.control_idle_ms);
        for held in &mut self.held {
            let connection = &held.live.connection;
            let unused = match held.role {
                Role::Current => false,
                // Its dialler closes it. The other one would not know whether a request is on
                // its way.
                Role::Retiring(since) => {
                    held.live.origin == Origin::Us
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

    /// Tells everybody which connection is to be used.
    fn publish(&self) {
        let current = self.held.iter().find(|held| held.role == Role::Current);
        self.peer.slot(self.kind).current.store(current.map(|held| Arc::clone(&held.live)));
    }
}

fn is_revoked(shared: &Shared, connection: &quinn::Connection) -> bool {
    let certificate = peer_certificate(connection);
    certificate.is_some_and(|it| shared.members.check_certificate(&it) == Err(Refusal::Revoked))
}

/// The next event of dialling; never, while there is nothing to dial.
async fn dialling(dialling: &mut Dialling) -> Event {
    match dialling {
        Dialling::Not => pending().await,
        Dialling::Due(due) => {
            sleep_until((*due).into()).await;
            Event::DialDue
        }
        Dialling::Underway(attempt) => Event::Dialled(attempt.await),
    }
}

async fn at(moment: Option<Instant>) {
    match moment {
        Some(moment) => sleep_until(moment.into()).await,
        None => pending().await,
    }
}
