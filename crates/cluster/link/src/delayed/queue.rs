//! Packets under way in the simulated network.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use quinn::udp::{EcnCodepoint, Transmit};

/// Most bytes under way at a time: 1 Gbit/s for half a second. Further packets are lost, as in any
/// network.
const WAITING_BYTES_MAX: usize = 64 << 20;

/// Packet under way, as the socket will send it.
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

/// Packets in the order in which they will be sent.
#[derive(Debug, Default)]
pub(super) struct Queue {
    waiting: Mutex<WaitingPackets>,
    /// Notified when another packet becomes the first, and at the end.
    changed: Condvar,
}

#[derive(Debug, Default)]
struct WaitingPackets {
    packets: BTreeMap<(Instant, u64), Packet>,
    bytes: usize,
    serial: u64,
    is_closed: bool,
}

impl Queue {
    /// Puts a packet in. The packet is lost if too many bytes are under way.
    pub(super) fn push(&self, at: Instant, packet: Packet) {
        let mut waiting = self.lock();
        if waiting.bytes + packet.contents.len() > WAITING_BYTES_MAX {
            return;
        }
        waiting.bytes += packet.contents.len();
        // The serial number keeps packets of one moment in order.
        waiting.serial += 1;
        let key = (at, waiting.serial);
        waiting.packets.insert(key, packet);
        // Only an earlier first packet changes how long the sending thread has to sleep.
        if waiting.packets.first_key_value().is_some_and(|(first, _)| *first == key) {
            self.changed.notify_one();
        }
    }

    /// Returns the next packet as soon as its time has come; `None` once the queue is closed.
    pub(super) fn next(&self) -> Option<Packet> {
        let mut waiting = self.lock();
        while !waiting.is_closed {
            let now = Instant::now();
            let first_at = waiting.packets.first_key_value().map(|((at, _), _)| *at);
            waiting = match first_at.map(|at| at.saturating_duration_since(now)) {
                Some(Duration::ZERO) => return waiting.pop(),
                Some(left) => {
                    self.changed
                        .wait_timeout(waiting, left)
                        .unwrap_or_else(PoisonError::into_inner)
                        .0
                }
                None => self.changed.wait(waiting).unwrap_or_else(PoisonError::into_inner),
            };
        }
        None
    }

    /// Closes the queue and ends [`Queue::next`] at once.
    pub(super) fn close(&self) {
        self.lock().is_closed = true;
        self.changed.notify_one();
    }

    fn lock(&self) -> MutexGuard<'_, WaitingPackets> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl WaitingPackets {
    fn pop(&mut self) -> Option<Packet> {
        let (_, packet) = self.packets.pop_first()?;
        self.bytes -= packet.contents.len();
        Some(packet)
    }
}
