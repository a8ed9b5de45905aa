//! One direction of a link: decides when a packet arrives, if at all.

use fastrand::Rng;
use serde::{Deserialize, Serialize};

use super::jitter::Jitter;
use super::shape::Shape;

/// What happened to the packets of one direction since the counts were last set to zero.
///
/// `offered + duplicated` is the sum of `delivered`, what was lost for any reason, and what is
/// still on its way.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Eq, Serialize)]
pub struct LinkCounts {
    /// Packets that came in.
    pub offered: u64,
    /// Packets that went out, copies included.
    pub delivered: u64,
    /// Bytes that went out.
    pub delivered_bytes: u64,
    /// Lost by chance.
    pub lost: u64,
    /// Lost because the queue before the rate was full.
    pub queue_full: u64,
    /// Lost because the link was cut when they came in or when they were due.
    pub cut: u64,
    /// Lost because sender and receiver were blocked.
    pub blocked: u64,
    /// Lost because the receiving region's address translation knows no one who waits for them.
    pub refused: u64,
    /// Lost because the emulator held as many packets as it may.
    pub overflowed: u64,
    /// Copies made.
    pub duplicated: u64,
    /// Packets that were held back so that others overtake them.
    pub reordered: u64,
    /// Packets with a flipped bit.
    pub corrupted: u64,
}

/// Whether packets pass at all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Passage {
    // Open => Cut
    Open,
    // Cut => Open
    Cut,
}

/// What becomes of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    /// It is gone; the counts say why.
    Gone,
    /// It arrives at `due_ns`, `copies` times.
    Arrives { due_ns: u64, copies: u8, is_corrupt: bool },
}

#[derive(Debug)]
pub(crate) struct Link {
    pub(crate) shape: Shape,
    /// What the config says: healing goes back to it.
    pub(crate) configured: Shape,
    pub(crate) passage: Passage,
    pub(crate) counts: LinkCounts,
    jitter: Jitter,
    is_in_burst: bool,
    /// When the last bit of what waits for the rate is sent.
    free_ns: u64,
    /// When the last packet that keeps its place is due: none behind it is earlier.
    floor_ns: u64,
}

impl Link {
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

    /// Takes a packet of `length_bytes` that comes in at `now_ns`.
    pub(crate) fn take(&mut self, now_ns: u64, length_bytes: u64, rng: &mut Rng) -> Fate {
        self.counts.offered += 1;
        if self.passage == Passage::Cut {
            self.counts.cut += 1;
            return Fate::Gone;
        }
        if self.loses(rng) {
            self.counts.lost += 1;
            return Fate::Gone;
        }
        let Some(sent_ns) = self.send(now_ns, length_bytes) else {
            self.counts.queue_full += 1;
            return Fate::Gone;
        };
        let due_ns = self.due(now_ns, sent_ns, rng);
        let is_corrupt = happens(self.shape.corrupt, rng);
        let is_doubled = happens(self.shape.duplicate, rng);
        self.counts.corrupted += u64::from(is_corrupt);
        self.counts.duplicated += u64::from(is_doubled);
        Fate::Arrives { due_ns, copies: 1 + u8::from(is_doubled), is_corrupt }
    }

    /// Loss with two states: in a burst everything is lost, outside nothing is.
    fn loses(&mut self, rng: &mut Rng) -> bool {
        let Shape { loss, loss_burst, .. } = self.shape;
        if loss <= 0.0 || loss >= 1.0 || loss_burst <= 1.0 {
            return happens(loss, rng);
        }
        let change =
            if self.is_in_burst { 1.0 / loss_burst } else { loss / (loss_burst * (1.0 - loss)) };
        self.is_in_burst ^= happens(change, rng);
        self.is_in_burst
    }

    /// When the packet has left the queue before the rate; `None` when it finds no room there.
    fn send(&mut self, now_ns: u64, length_bytes: u64) -> Option<u64> {
        let Some(rate_bytes) = self.shape.rate_bytes else { return Some(now_ns) };
        let start_ns = self.free_ns.max(now_ns);
        let waiting = u128::from(start_ns - now_ns) * u128::from(rate_bytes) / 1_000_000_000;
        if waiting + u128::from(length_bytes) > u128::from(self.shape.queue_bytes_max) {
            return None;
        }
        // At a rate of at least 125 bytes a second the product fits and the sum is a few minutes.
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
        let in_order_ns = (sent_ns + way_ns).max(self.floor_ns);
        if happens(shape.reorder, rng) {
            self.counts.reordered += 1;
            return in_order_ns + shape.reorder_by_ns;
        }
        self.floor_ns = in_order_ns;
        in_order_ns
    }

    /// Takes a new shape; what is on its way keeps its time, and nothing new waits for it.
    pub(crate) fn reshape(&mut self, shape: Shape) {
        self.shape = shape;
        self.floor_ns = 0;
        self.free_ns = 0;
    }
}

/// True with a chance of `share`, without a draw where there is nothing to decide.
fn happens(share: f64, rng: &mut Rng) -> bool {
    share > 0.0 && (share >= 1.0 || rng.f64() < share)
}

#[cfg(test)]
#[path = "link_test.rs"]
mod tests;
