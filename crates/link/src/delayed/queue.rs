//! Packets that are on their way.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use quinn::udp::{EcnCodepoint, Transmit};

/// Bytes on their way at a time: 1 Gbit/s for half a second. More is lost, as in any network.
const WAITING_BYTES_MAX: usize = 64 << 20;

/// A packet on its way, as the socket will send it.
#[derive(Debug)]
pub(super) struct Packet {
    destination: SocketAddr,
    ecn: Option<EcnCodepoint>,
    source: Option<IpAddr>,
    contents: Box<[u8]>,
}

impl Packet {
    pub(super) fn of(transmit: &Transmit<'_>, contents: &[u8]) -> Self {
        Self {
            destination: transmit.destination,
            ecn: transmit.ecn,
            source: transmit.src_ip,
            contents: contents.into(),
        }
    }

    pub(super) fn transmit(&self) -> Transmit<'_> {
        Transmit {
            destination: self.destination,
            ecn: self.ecn,
            contents: &self.contents,
            segment_size: None,
            src_ip: self.source,
        }
    }
}

/// Packets in the order in which they are to be sent.
#[derive(Debug, Default)]
pub(super) struct Queue(Mutex<Waiting>);

#[derive(Debug, Default)]
struct Waiting {
    packets: BTreeMap<(Instant, u64), Packet>,
    bytes: usize,
    serial: u64,
}

impl Queue {
    /// Puts a packet in; `true` if it is now the first, `false` also if it was lost.
    pub(super) fn push(&self, at: Instant, packet: Packet) -> bool {
        let mut waiting = self.lock();
        if waiting.bytes + packet.contents.len() > WAITING_BYTES_MAX {
            return false;
        }
        waiting.bytes += packet.contents.len();
        waiting.serial += 1;
        let key = (at, waiting.serial);
        waiting.packets.insert(key, packet);
        waiting.packets.first_key_value().is_some_and(|(first, _)| *first == key)
    }

    /// When the first packet is to be sent.
    pub(super) fn first_at(&self) -> Option<Instant> {
        self.lock().packets.first_key_value().map(|((at, _), _)| *at)
    }

    /// Takes the first packet if its time has come.
    pub(super) fn pop(&self, now: Instant) -> Option<Packet> {
        let mut waiting = self.lock();
        let due = waiting.packets.first_entry().filter(|entry| entry.key().0 <= now)?;
        let packet = due.remove();
        waiting.bytes -= packet.contents.len();
        Some(packet)
    }

    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
