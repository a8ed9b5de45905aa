//! Direction of a link: decides if and when a packet arrives.

use fastrand::Rng;
use serde::{Deserialize, Serialize};

use super::jitter::Jitter;
use super::shape::Shape;

/// Counts of one direction since they were last set to zero.
///
/// `offered + duplicated` is the sum of `delivered`, all losses, and the packets in transit.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Eq, Serialize)]
pub struct LinkCounts {
    /// Packets that entered the link.
    pub offered: u64,
    /// Packets that left the link, copies included.
    pub delivered: u64,
    /// Bytes that left the link.
    pub delivered_bytes: u64,
    /// Packets lost at random.
    pub lost: u64,
    /// Packets lost because the queue of the rate limit was full.
    pub queue_full: u64,
    /// Packets lost because the link was cut when they entered or when they were due.
    pub cut: u64,
    /// Packets lost because sender and receiver were blocked.
    pub blocked: u64,
    /// Packets lost because the receiving region's address translation had no flow for them.
    pub refused: u64,
    /// Packets lost because the emulator was at its limit of packets or bytes.
    pub overflowed: u64,
    /// Copies made of packets.
    pub duplicated: u64,
    /// Packets held back so that others overtake them.
    pub reordered: u64,
    /// Packets with a flipped bit.
    pub corrupted: u64,
}

/// State of a direction: packets pass, or none does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Passage {
    // Open => Cut
    Open,
    // Cut => Open
    Cut,
}

/// Fate of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PacketFate {
    /// The packet is lost; the counts have the reason.
    Gone,
    /// The packet arrives at `due_ns`, `copies` times.
    Arrives { due_ns: u64, copies: u8, is_corrupt: bool },
}

#[derive(Debug)]
pub(crate) struct WanLink {
    pub(crate) shape: Shape,
    /// Shape in the config, to which healing returns.
    pub(crate) configured: Shape,
    pub(crate) passage: Passage,
    pub(crate) counts: LinkCounts,
    jitter: Jitter,
    is_in_burst: bool,
    /// Time at which the last bit in the rate limit's queue is sent.
    free_ns: u64,
    /// Due time of the last packet in order; later packets are not due before it.
    floor_ns: u64,
}

impl WanLink {
    pub(crate) fn new(shape: Shape) -> Self {
        Self {
            shape,
            configured: shape,
            passage: Passage::Open,
            counts: LinkCounts::default(),
            jitter: Jitter::default(),
            is_in_burst: false,
            free_ns: 0,
            floor_ns: 0,
        }
    }

    /// Takes a packet of `length_bytes` that enters at `now_ns`, and decides its fate.
    pub(crate) fn take(&mut self, now_ns: u64, length_bytes: u64, rng: &mut Rng) -> PacketFate {
        self.counts.offered += 1;
        if self.passage == Passage::Cut {
            self.counts.cut += 1;
            return PacketFate::Gone;
        }
        if self.loses(rng) {
            self.counts.lost += 1;
            return PacketFate::Gone;
        }
        let Some(sent_ns) = self.send(now_ns, length_bytes) else {
            self.counts.queue_full += 1;
            return PacketFate::Gone;
        };
        let due_ns = self.due(now_ns, sent_ns, rng);
        let is_corrupt = happens(self.shape.corrupt, rng);
        let is_doubled = happens(self.shape.duplicate, rng);
        self.counts.corrupted += u64::from(is_corrupt);
        self.counts.duplicated += u64::from(is_doubled);
        PacketFate::Arrives { due_ns, copies: 1 + u8::from(is_doubled), is_corrupt }
    }

    /// Returns true if the packet is lost. Loss has two states (Gilbert model): in a burst all
    /// packets are lost, outside none is.
    fn loses(&mut self, rng: &mut Rng) -> bool {
        let Shape { loss, loss_burst, .. } = self.shape;
        // Without bursts, or if no packet or each one is lost, packets are independent.
        if loss <= 0.0 || loss >= 1.0 || loss_burst <= 1.0 {
            return happens(loss, rng);
        }
        // The chances to leave and to enter a burst that give the mean length and the total loss.
        let change =
            if self.is_in_burst { 1.0 / loss_burst } else { loss / (loss_burst * (1.0 - loss)) };
        self.is_in_burst ^= happens(change, rng);
        self.is_in_burst
    }

    /// Returns the time at which the packet has left the rate limit's queue; `None` if the queue is
    /// full.
    fn send(&mut self, now_ns: u64, length_bytes: u64) -> Option<u64> {
        let Some(rate_bytes) = self.shape.rate_bytes else { return Some(now_ns) };
        let start_ns = self.free_ns.max(now_ns);
        let waiting = u128::from(start_ns - now_ns) * u128::from(rate_bytes) / 1_000_000_000;
        if waiting + u128::from(length_bytes) > u128::from(self.shape.queue_bytes_max) {
            return None;
        }
        // The rate is at least 125 bytes a second, so the product fits in 64 bits and the sum is a
        // few minutes.
        self.free_ns = start_ns + length_bytes * 1_000_000_000 / rate_bytes;
        Some(self.free_ns)
    }

    fn due(&mut self, now_ns: u64, sent_ns: u64, rng: &mut Rng) -> u64 {
        let shape = &self.shape;
        let jitter_ns = match shape.jitter_ns {
            0 => 0.0,
            deviation_ns => {
                self.jitter.at(now_ns, shape.jitter_period_ns, rng) * deviation_ns as f64
            }
        };
        let way_ns = (shape.delay_ns as f64 + jitter_ns).max(0.0) as u64;
        // Jitter alone never makes a packet overtake another.
        let in_order_ns = (sent_ns + way_ns).max(self.floor_ns);
        if happens(shape.reorder, rng) {
            self.counts.reordered += 1;
            // The floor stays, so that later packets overtake this one.
            return in_order_ns + shape.reorder_by_ns;
        }
        self.floor_ns = in_order_ns;
        in_order_ns
    }

    /// Takes a new shape. Packets in transit keep their due time, and new packets do not wait for
    /// them.
    pub(crate) fn reshape(&mut self, shape: Shape) {
        self.shape = shape;
        self.floor_ns = 0;
        self.free_ns = 0;
    }
}

/// Returns true with a probability of `share`. Draws no random number if `share` is 0 or 1.
fn happens(share: f64, rng: &mut Rng) -> bool {
    share > 0.0 && (share >= 1.0 || rng.f64() < share)
}

#[cfg(test)]
#[path = "link_test.rs"]
mod tests;
