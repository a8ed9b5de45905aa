//! What can be said of a peer, for metrics, the admin listener and the router.

use std::sync::atomic::Ordering;
use std::time::Duration;

use super::live::{Live, Origin};
use super::{Peer, Slot};
use crate::identity::Identity;
use crate::kind::Kind;

/// What can be said of a peer.
#[derive(Clone, Debug)]
pub struct PeerStatus {
    /// Who it is.
    pub identity: Identity,
    /// Where it is, as configured.
    pub address: String,
    /// Its control connection; `None` if there is none now.
    pub control: Option<ConnectionStatus>,
    /// Its data connection; `None` if there is none now.
    pub data: Option<ConnectionStatus>,
    /// Dials for control connections.
    pub control_dials: DialStatus,
    /// Dials for data connections.
    pub data_dials: DialStatus,
}

impl PeerStatus {
    /// Whether requests and load reports can be sent to it.
    #[must_use]
    pub fn is_connected(&self) -> bool {
        self.control.is_some() && self.data.is_some()
    }

    /// The smoothed round trip. The control connection's as a rule: bulk does not lengthen it.
    #[must_use]
    pub fn rtt(&self) -> Option<Duration> {
        self.control.as_ref().or(self.data.as_ref()).map(|connection| connection.rtt)
    }
}

/// What can be said of one connection.
#[derive(Clone, Copy, Debug)]
pub struct ConnectionStatus {
    /// How long it stands.
    pub age: Duration,
    /// Whether this node has dialled it.
    pub dialled: bool,
    /// The smoothed round trip.
    pub rtt: Duration,
    /// Bytes sent on it, everything included.
    pub sent_bytes: u64,
    /// Bytes received on it, everything included.
    pub received_bytes: u64,
    /// Packets sent on it.
    pub sent_packets: u64,
    /// Packets sent on it that were lost.
    pub lost_packets: u64,
    /// Bytes that may be under way.
    pub congestion_window_bytes: u64,
    /// Requests open on it, either way.
    pub streams: usize,
}

/// How dialling went.
#[derive(Clone, Debug, Default)]
pub struct DialStatus {
    /// Attempts.
    pub attempts: u64,
    /// Attempts that failed.
    pub failed: u64,
    /// Why the last that failed did.
    pub last_fault: Option<String>,
}

impl Peer {
    pub(crate) fn status(&self) -> PeerStatus {
        PeerStatus {
            identity: self.identity.clone(),
            address: self.target.load().address.clone(),
            control: self.current(Kind::Control).map(|live| connection_status(&live)),
            data: self.current(Kind::Data).map(|live| connection_status(&live)),
            control_dials: dial_status(self.slot(Kind::Control)),
            data_dials: dial_status(self.slot(Kind::Data)),
        }
    }
}

fn connection_status(live: &Live) -> ConnectionStatus {
    let stats = live.connection.stats();
    ConnectionStatus {
        age: live.since.elapsed(),
        dialled: live.origin == Origin::Us,
        rtt: stats.path.rtt,
        sent_bytes: stats.udp_tx.bytes,
        received_bytes: stats.udp_rx.bytes,
        sent_packets: stats.path.sent_packets,
        lost_packets: stats.path.lost_packets,
        congestion_window_bytes: stats.path.cwnd,
        streams: live.streams(),
    }
}

fn dial_status(slot: &Slot) -> DialStatus {
    DialStatus {
        attempts: slot.dials.load(Ordering::Relaxed),
        failed: slot.dials_failed.load(Ordering::Relaxed),
        last_fault: slot.last_fault.load_full().map(|fault| (*fault).clone()),
    }
}
