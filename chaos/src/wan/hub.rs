//! Network as a state machine: a packet enters at one namespace and leaves at another, later.
//!
//! The hub has no clock and no device. Its driver offers the packets that devices have read, asks
//! for the time of the next due packet, and takes the packets that are due.

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap};
use std::net::Ipv4Addr;

use fastrand::Rng;
use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

use super::link::{PacketFate, Passage, WanLink};
use super::nat::Nat;
use super::packet::{Packet, Side};
use super::topology::Topology;

/// Most buffers to keep for later packets.
const SPARE_MAX: usize = 4096;

/// Largest lateness to record, in microseconds.
const LATENESS_US_MAX: u64 = 60_000_000;

/// Counts of packets that never reached a link.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Eq, Serialize)]
pub struct StrayCounts {
    /// Not a whole IPv4 packet. Kernels send IPv6 router solicitations now and then.
    pub not_ipv4: u64,
    /// Source address that the sending namespace does not have.
    pub foreign: u64,
    /// Destination address that no namespace has.
    pub no_route: u64,
    /// No translation possible: a fragment, an ICMP error, another protocol, or no free port.
    pub untranslatable: u64,
}

/// Block of all packets from one address to another; `None` means all addresses.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct HubBlock {
    /// Sender.
    pub from: Option<Ipv4Addr>,
    /// Receiver.
    pub to: Option<Ipv4Addr>,
}

/// Packet that has arrived at a namespace.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Parcel {
    pub(crate) namespace: usize,
    pub(crate) bytes: Vec<u8>,
}

#[derive(Debug)]
pub(crate) struct Hub {
    pub(crate) topology: Topology,
    pub(crate) links: Vec<WanLink>,
    pub(crate) nats: Vec<Option<Nat>>,
    pub(crate) blocks: BTreeSet<HubBlock>,
    pub(crate) strays: StrayCounts,
    /// Microseconds between the time at which a packet was due and the time at which it was taken.
    pub(crate) lateness_us: Histogram<u64>,
    /// Namespaces of each region, by their inside addresses.
    inside: Vec<BTreeMap<Ipv4Addr, usize>>,
    /// Receivers of the addresses that all regions see.
    public: BTreeMap<Ipv4Addr, HubTarget>,
    queue: BinaryHeap<Due>,
    queued_bytes: usize,
    sequence: u64,
    rng: Rng,
    spare: Vec<Vec<u8>>,
}

#[derive(Clone, Copy, Debug)]
enum HubTarget {
    Namespace(usize),
    /// Region whose address translation finds the receiver on arrival.
    Nat(usize),
}

#[derive(Debug)]
struct Due {
    due_ns: u64,
    /// Order of arrival, for packets that are due at the same time.
    sequence: u64,
    link: usize,
    target: HubTarget,
    /// Source address before translation.
    source: Ipv4Addr,
    bytes: Vec<u8>,
}

/// Route of a packet, as far as its addresses determine it.
struct Way {
    link: usize,
    target: HubTarget,
    source: Ipv4Addr,
}

impl Hub {
    pub(crate) fn new(topology: Topology) -> Self {
        let count = topology.regions.len();
        let mut inside = vec![BTreeMap::new(); count];
        let mut public = BTreeMap::new();
        for (index, namespace) in topology.namespaces.iter().enumerate() {
            for (_, address) in &namespace.nodes {
                inside[namespace.region].insert(*address, index);
                match &topology.regions[namespace.region].nat {
                    Some(plan) => public.insert(plan.public, HubTarget::Nat(namespace.region)),
                    None => public.insert(*address, HubTarget::Namespace(index)),
                };
            }
        }
        let nats = topology.regions.iter().map(|region| region.nat.clone().map(Nat::new)).collect();
        Self {
            links: topology.shapes.iter().copied().map(WanLink::new).collect(),
            nats,
            blocks: BTreeSet::new(),
            strays: StrayCounts::default(),
            lateness_us: new_histogram(),
            inside,
            public,
            queue: BinaryHeap::new(),
            queued_bytes: 0,
            sequence: 0,
            rng: Rng::with_seed(topology.seed),
            spare: Vec::new(),
            topology,
        }
    }

    /// Takes a packet that the device of `namespace` has sent. `now_ns` must not go back.
    pub(crate) fn offer(&mut self, now_ns: u64, namespace: usize, bytes: &[u8]) {
        let mut buffer = self.buffer(bytes);
        let Some(way) = self.find_way(now_ns, namespace, &mut buffer) else {
            self.recycle(buffer);
            return;
        };
        let receiver = destination(&buffer);
        let length_bytes = buffer.len() as u64;
        if self.is_blocked(&[way.source, source(&buffer)], &[receiver]) {
            // Counted here, since a blocked packet never gets to the link's `take`.
            self.links[way.link].counts.offered += 1;
            self.links[way.link].counts.blocked += 1;
            self.recycle(buffer);
            return;
        }
        match self.links[way.link].take(now_ns, length_bytes, &mut self.rng) {
            PacketFate::Gone => self.recycle(buffer),
            PacketFate::Arrives { due_ns, copies, is_corrupt } => {
                if is_corrupt && let Some(mut packet) = Packet::parse(&mut buffer) {
                    packet.flip_bit(self.rng.usize(..));
                }
                for _ in 1..copies {
                    let copy = self.buffer(&buffer);
                    self.push(due_ns, &way, copy);
                }
                self.push(due_ns, &way, buffer);
            }
        }
    }

    /// Returns the time of the next due packet; `None` without one. Changes with each `offer` and
    /// `take`.
    #[must_use]
    pub(crate) fn next_due_ns(&self) -> Option<u64> {
        self.queue.peek().map(|due| due.due_ns)
    }

    /// Returns the number of packets in transit.
    #[must_use]
    pub(crate) fn in_flight(&self) -> usize {
        self.queue.len()
    }

    /// Returns the next packet that is due at `now_ns`. Call this until it returns `None`.
    pub(crate) fn take(&mut self, now_ns: u64) -> Option<Parcel> {
        while self.next_due_ns().is_some_and(|due_ns| due_ns <= now_ns) {
            let due = self.queue.pop()?;
            self.queued_bytes -= due.bytes.len();
            self.lateness_us.saturating_record((now_ns - due.due_ns) / 1_000);
            if let Some(parcel) = self.arrive(now_ns, due) {
                return Some(parcel);
            }
        }
        None
    }

    /// Takes back a buffer, for later packets.
    pub(crate) fn recycle(&mut self, buffer: Vec<u8>) {
        if self.spare.len() < SPARE_MAX {
            self.spare.push(buffer);
        }
    }

    /// Sets all counts to zero.
    pub(crate) fn reset_counts(&mut self) {
        self.strays = StrayCounts::default();
        self.lateness_us.reset();
        for link in &mut self.links {
            link.counts = super::link::LinkCounts::default();
        }
    }

    /// Translates the source address and returns the route. Counts a stray and returns `None` if
    /// there is no route.
    fn find_way(&mut self, now_ns: u64, namespace: usize, bytes: &mut [u8]) -> Option<Way> {
        let Some(mut packet) = Packet::parse(bytes) else {
            self.strays.not_ipv4 += 1;
            return None;
        };
        let region = self.topology.namespaces[namespace].region;
        let source = packet.address(Side::Source);
        if self.inside[region].get(&source) != Some(&namespace) {
            self.strays.foreign += 1;
            return None;
        }
        let destination = packet.address(Side::Destination);
        let here = region * self.topology.regions.len();
        if let Some(namespace) = self.inside[region].get(&destination) {
            // Within the region nothing is translated.
            return Some(Way {
                link: here + region,
                target: HubTarget::Namespace(*namespace),
                source,
            });
        }
        let Some(target) = self.public.get(&destination).copied() else {
            self.strays.no_route += 1;
            return None;
        };
        if let Some(nat) = &mut self.nats[region]
            && nat.leave(now_ns, &mut packet).is_none()
        {
            self.strays.untranslatable += 1;
            return None;
        }
        let there = match target {
            HubTarget::Namespace(namespace) => self.topology.namespaces[namespace].region,
            HubTarget::Nat(region) => region,
        };
        Some(Way { link: here + there, target, source })
    }

    fn push(&mut self, due_ns: u64, way: &Way, bytes: Vec<u8>) {
        let is_full = self.queue.len() >= self.topology.packets_max
            || self.queued_bytes + bytes.len() > self.topology.bytes_max;
        if is_full {
            self.links[way.link].counts.overflowed += 1;
            self.recycle(bytes);
            return;
        }
        self.queued_bytes += bytes.len();
        self.sequence += 1;
        let &Way { link, target, source } = way;
        self.queue.push(Due { due_ns, sequence: self.sequence, link, target, source, bytes });
    }

    /// Ends a packet's transit. A cut or block that came in the meantime loses the packet, as a
    /// broken cable does.
    fn arrive(&mut self, now_ns: u64, due: Due) -> Option<Parcel> {
        let Due { link, target, source: sender, mut bytes, .. } = due;
        if self.links[link].passage == Passage::Cut {
            self.links[link].counts.cut += 1;
            self.recycle(bytes);
            return None;
        }
        // A block may name addresses from before or after translation.
        let sources = [sender, source(&bytes)];
        let public = destination(&bytes);
        let Some(namespace) = self.enter(now_ns, target, &mut bytes) else {
            self.links[link].counts.refused += 1;
            self.recycle(bytes);
            return None;
        };
        if self.is_blocked(&sources, &[public, destination(&bytes)]) {
            self.links[link].counts.blocked += 1;
            self.recycle(bytes);
            return None;
        }
        let counts = &mut self.links[link].counts;
        counts.delivered += 1;
        counts.delivered_bytes += bytes.len() as u64;
        Some(Parcel { namespace, bytes })
    }

    fn enter(&mut self, now_ns: u64, target: HubTarget, bytes: &mut [u8]) -> Option<usize> {
        match target {
            HubTarget::Namespace(namespace) => Some(namespace),
            HubTarget::Nat(region) => {
                let mut packet = Packet::parse(bytes)?;
                let inside = self.nats[region].as_mut()?.arrive(now_ns, &mut packet)?;
                self.inside[region].get(&inside).copied()
            }
        }
    }

    fn is_blocked(&self, sources: &[Ipv4Addr], destinations: &[Ipv4Addr]) -> bool {
        if self.blocks.is_empty() {
            return false;
        }
        let each = |addresses: &[Ipv4Addr]| -> Vec<Option<Ipv4Addr>> {
            addresses.iter().copied().map(Some).chain([None]).collect()
        };
        let destinations = each(destinations);
        each(sources).iter().any(|&from| {
            destinations.iter().any(|&to| self.blocks.contains(&HubBlock { from, to }))
        })
    }

    fn buffer(&mut self, bytes: &[u8]) -> Vec<u8> {
        let mut buffer = self.spare.pop().unwrap_or_default();
        buffer.clear();
        buffer.extend_from_slice(bytes);
        buffer
    }
}

/// Makes a histogram of two significant figures: lateness is shown to about 1 %.
fn new_histogram() -> Histogram<u64> {
    #[expect(clippy::expect_used, reason = "the bounds are constants that the histogram takes")]
    Histogram::new_with_bounds(1, LATENESS_US_MAX, 2).expect("bounds of a histogram")
}

fn source(bytes: &[u8]) -> Ipv4Addr {
    Ipv4Addr::new(bytes[12], bytes[13], bytes[14], bytes[15])
}

fn destination(bytes: &[u8]) -> Ipv4Addr {
    Ipv4Addr::new(bytes[16], bytes[17], bytes[18], bytes[19])
}

impl Ord for Due {
    /// Orders by due time, reversed: the heap's greatest is the one to take first.
    fn cmp(&self, other: &Self) -> Ordering {
        (other.due_ns, other.sequence).cmp(&(self.due_ns, self.sequence))
    }
}

impl PartialOrd for Due {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Due {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Due {}

#[cfg(test)]
#[path = "hub_test.rs"]
mod tests;
