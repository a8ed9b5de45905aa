//! A peer of this node, with the two connections to it.

mod back_off;
mod dial;
mod keeper;
mod live;
mod status;
mod watch;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use arc_swap::{ArcSwap, ArcSwapOption};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use crate::config::PeerConfig;
use crate::identity::Identity;
use crate::kind::Kind;
pub(crate) use dial::{DialError, look_up};
pub(crate) use keeper::start;
pub(crate) use live::{Arrival, ConnectionOrigin, LiveConnection, OpenStream, OpenStreams};
pub use status::{ConnectionStatus, DialStatus, PeerStatus};

/// Connections of one kind that may wait for the keeper; a healthy peer has one or two.
const ARRIVALS_MAX: usize = 8;

/// Address of a peer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PeerTarget {
    pub(crate) address: String,
    pub(crate) rtt_ms: Option<u32>,
}

/// A peer of this node, as all parts but its keepers see it.
#[derive(Debug)]
pub(crate) struct Peer {
    pub(crate) identity: Identity,
    pub(crate) target: ArcSwap<PeerTarget>,
    slots: [Slot; 2],
    stop: CancellationToken,
}

/// Connection of one kind to a peer, with its counters.
#[derive(Debug)]
struct Slot {
    current: ArcSwapOption<LiveConnection>,
    /// Time at which the last connection ended; `None` while there is one, or before the first.
    lost_at: ArcSwapOption<Instant>,
    arrivals: mpsc::Sender<Arrival>,
    dials: AtomicU64,
    dials_failed: AtomicU64,
    last_fault: ArcSwapOption<String>,
}

impl Peer {
    /// Creates a peer without connections. Returns with it the new connections of each kind, in the
    /// order of [`Kind::ALL`], for its keepers.
    fn new(config: PeerConfig, stop: CancellationToken) -> (Self, [mpsc::Receiver<Arrival>; 2]) {
        let (control, control_arrivals) = Slot::new();
        let (data, data_arrivals) = Slot::new();
        let peer = Self {
            identity: config.identity,
            target: ArcSwap::from_pointee(PeerTarget {
                address: config.address,
                rtt_ms: config.rtt_ms,
            }),
            slots: [control, data],
            stop,
        };
        (peer, [control_arrivals, data_arrivals])
    }

    /// Takes over a new address. Existing connections go on.
    pub(crate) fn move_to(&self, config: &PeerConfig) {
        let target = PeerTarget { address: config.address.clone(), rtt_ms: config.rtt_ms };
        self.target.store(target.into());
    }

    /// Ends all connections; the peer is no longer a member.
    pub(crate) fn stop(&self) {
        self.stop.cancel();
    }

    /// Hands a new connection to the keeper; returns false if too many wait.
    pub(crate) fn arrive(&self, kind: Kind, arrival: Arrival) -> bool {
        self.slot(kind).arrivals.try_send(arrival).is_ok()
    }

    /// Dials as the keeper does, even if there is a connection.
    #[cfg(test)]
    pub(crate) async fn dial_for_tests(
        self: &Arc<Self>,
        shared: &Arc<crate::shared::LinkShared>,
        kind: Kind,
    ) {
        let arrival = dial::dial(Arc::clone(shared), Arc::clone(self), kind, 0).await.unwrap();
        assert!(self.arrive(kind, arrival));
    }

    /// Returns the connection to use for new requests.
    pub(crate) fn current(&self, kind: Kind) -> Option<Arc<LiveConnection>> {
        self.slot(kind).current.load_full()
    }

    /// Returns the measured round trip of a connection of either kind, because both take the same
    /// path; `None` without a connection.
    pub(crate) fn rtt(&self, kind: Kind) -> Option<Duration> {
        let other = match kind {
            Kind::Control => Kind::Data,
            Kind::Data => Kind::Control,
        };
        let live = self.current(kind).or_else(|| self.current(other))?;
        Some(live.connection.rtt())
    }

    fn slot(&self, kind: Kind) -> &Slot {
        &self.slots[kind as usize]
    }
}

impl Slot {
    fn new() -> (Self, mpsc::Receiver<Arrival>) {
        let (arrivals, receiver) = mpsc::channel(ARRIVALS_MAX);
        let slot = Self {
            current: ArcSwapOption::empty(),
            lost_at: ArcSwapOption::empty(),
            arrivals,
            dials: AtomicU64::new(0),
            dials_failed: AtomicU64::new(0),
            last_fault: ArcSwapOption::empty(),
        };
        (slot, receiver)
    }

    /// Publishes the connection to use for new requests.
    fn publish(&self, current: Option<Arc<LiveConnection>>) {
        let is_lost = current.is_none();
        let before = self.current.swap(current);
        match (before, is_lost) {
            (Some(_), true) => self.lost_at.store(Some(Arc::new(Instant::now()))),
            (_, false) => self.lost_at.store(None),
            (None, true) => {}
        }
    }

    fn note_fault(&self, fault: &dyn std::error::Error) {
        self.dials_failed.fetch_add(1, Ordering::Relaxed);
        self.last_fault.store(Some(Arc::new(fault.to_string())));
    }
}
