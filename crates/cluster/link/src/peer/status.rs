//! Status of a peer, for metrics, the admin listener and the router.

use std::sync::atomic::Ordering;
use std::time::Duration;

use super::live::{ConnectionOrigin, LiveConnection};
use super::{Peer, Slot};
use crate::identity::Identity;
use crate::kind::Kind;

/// Status of a peer.
#[derive(Clone, Debug)]
pub struct PeerStatus {
    /// Identity of the peer.
    pub identity: Identity,
    /// Configured address of the peer.
    pub address: String,
    /// Status of the control connection; `None` if there is none now.
    pub control: Option<ConnectionStatus>,
    /// Status of the data connection; `None` if there is none now.
    pub data: Option<ConnectionStatus>,
    /// Time since the control connection was lost; `None` if there is one, or never was.
    pub control_lost_for: Option<Duration>,
    /// Dials for control connections.
    pub control_dials: DialStatus,
    /// Dials for data connections.
    pub data_dials: DialStatus,
}

impl PeerStatus {
    /// Returns true if requests and load reports can be sent to the peer.
    #[must_use]
    pub fn is_connected(&self) -> bool {
        self.control.is_some() && self.data.is_some()
    }

    /// Returns the smoothed round trip, of the control connection if there is one: bulk does not
    /// lengthen it.
    #[must_use]
    pub fn rtt(&self) -> Option<Duration> {
        self.control.as_ref().or(self.data.as_ref()).map(|connection| connection.rtt)
    }
}

/// Status of one connection.
#[derive(Clone, Copy, Debug)]
pub struct ConnectionStatus {
    /// Time since the connection was made.
    pub age: Duration,
    /// True if this node has dialled the connection.
    pub dialled: bool,
    /// Smoothed round trip.
    pub rtt: Duration,
    /// Bytes sent, headers of QUIC included.
    pub sent_bytes: u64,
    /// Bytes received, headers of QUIC included.
    pub received_bytes: u64,
    /// Packets sent.
    pub sent_packets: u64,
    /// Packets sent that were lost.
    pub lost_packets: u64,
    /// Congestion window: bytes that may be under way.
    pub congestion_window_bytes: u64,
    /// Requests open on the connection, in both directions.
    pub streams: usize,
}

/// Results of dialling.
#[derive(Clone, Debug, Default)]
pub struct DialStatus {
    /// Number of attempts.
    pub attempts: u64,
    /// Number of attempts that failed.
    pub failed: u64,
    /// Error of the last attempt that failed.
    pub last_fault: Option<String>,
}

impl Peer {
    pub(crate) fn status(&self) -> PeerStatus {
        PeerStatus {
            identity: self.identity.clone(),
            address: self.target.load().address.clone(),
            control: self.current(Kind::Control).map(|live| connection_status(&live)),
            data: self.current(Kind::Data).map(|live| connection_status(&live)),
            control_lost_for: lost_for(self.slot(Kind::Control)),
            control_dials: dial_status(self.slot(Kind::Control)),
            data_dials: dial_status(self.slot(Kind::Data)),
        }
    }
}

fn connection_status(live: &LiveConnection) -> ConnectionStatus {
    let stats = live.connection.stats();
    ConnectionStatus {
        age: live.since.elapsed(),
        dialled: live.origin == ConnectionOrigin::Us,
        rtt: stats.path.rtt,
        sent_bytes: stats.udp_tx.bytes,
        received_bytes: stats.udp_rx.bytes,
        sent_packets: stats.path.sent_packets,
        lost_packets: stats.path.lost_packets,
        congestion_window_bytes: stats.path.cwnd,
        streams: live.streams(),
    }
}

fn lost_for(slot: &Slot) -> Option<Duration> {
    slot.lost_at.load().as_ref().map(|at| at.elapsed())
}

fn dial_status(slot: &Slot) -> DialStatus {
    DialStatus {
        attempts: slot.dials.load(Ordering::Relaxed),
        failed: slot.dials_failed.load(Ordering::Relaxed),
        last_fault: slot.last_fault.load_full().map(|fault| (*fault).clone()),
    }
}
