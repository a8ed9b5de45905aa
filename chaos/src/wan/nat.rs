//! Address translation (NAT) at the edge of a region, as in a home router or a cloud gateway.
//!
//! A packet that leaves gets the region's public address, and keeps its port if that is free. A
//! packet that arrives passes if its port is forwarded, or if it comes from an address and port
//! that the inside has written to.

use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;

use serde::{Deserialize, Serialize};

use super::packet::{Packet, PacketAddress, PacketProtocol, Side};

/// Most flows that a region remembers, as many as a small router. Beyond that the longest idle one
/// is forgotten.
pub const MAPPINGS_MAX: usize = 4096;

/// Most peers of one mapping. Beyond that the one with the lowest address is forgotten.
const PEERS_MAX: usize = 1024;

/// First port for flows whose own port is taken: ports from here on have no well-known service.
const PORTS_FROM: u16 = 32_768;
const PORTS_GIVEN: u16 = 32_768;

/// Forwarding of a public port to a node inside.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Forward {
    /// Protocol: `tcp` or `udp`.
    pub protocol: PacketProtocol,
    /// Port of the public address.
    pub port: u16,
    /// Inside address.
    pub to: Ipv4Addr,
    /// Inside port; `None` for the same port.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub to_port: Option<u16>,
}

impl Forward {
    fn inside(&self) -> PacketAddress {
        (self.to, self.to_port.unwrap_or(self.port))
    }
}

/// Settings of a region's address translation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NatPlan {
    /// Only address of the region that other regions see.
    pub public: Ipv4Addr,
    /// Idle time in nanoseconds after which a mapping is forgotten.
    pub idle_ns: u64,
    /// Forwarded ports.
    pub forwards: Vec<Forward>,
}

#[derive(Debug)]
struct Mapping {
    public_port: u16,
    used_ns: u64,
    /// Peers that the inside has written to; only these may answer.
    peers: BTreeSet<PacketAddress>,
}

/// Address translation of one region.
#[derive(Debug)]
pub(crate) struct Nat {
    pub(crate) plan: NatPlan,
    mappings: BTreeMap<(PacketProtocol, PacketAddress), Mapping>,
    /// Inside endpoint of each public port in use.
    owners: BTreeMap<(PacketProtocol, u16), PacketAddress>,
    /// Number of rebinds. Shifts the ports that are given out.
    rebinds: u16,
}

impl Nat {
    pub(crate) fn new(plan: NatPlan) -> Self {
        Self { plan, mappings: BTreeMap::new(), owners: BTreeMap::new(), rebinds: 0 }
    }

    /// Rewrites the source of a packet that leaves; `None` if it cannot be translated.
    pub(crate) fn leave(&mut self, now_ns: u64, packet: &mut Packet<'_>) -> Option<()> {
        let (protocol, inside, peer) = packet.flow()?;
        let forward = self
            .plan
            .forwards
            .iter()
            .find(|forward| forward.protocol == protocol && forward.inside() == inside);
        // A forwarded endpoint leaves by its forwarded port, so that peers recognize its answers.
        let public_port = match forward {
            Some(forward) => forward.port,
            None => self.map(now_ns, (protocol, inside), peer)?,
        };
        packet.rewrite(Side::Source, (self.plan.public, public_port));
        Some(())
    }

    /// Rewrites the destination of a packet that arrives, and returns the inside address; `None`
    /// refuses it.
    pub(crate) fn arrive(&mut self, now_ns: u64, packet: &mut Packet<'_>) -> Option<Ipv4Addr> {
        let (protocol, peer, (_, public_port)) = packet.flow()?;
        let forward = self
            .plan
            .forwards
            .iter()
            .find(|forward| forward.protocol == protocol && forward.port == public_port);
        let inside = match forward {
            Some(forward) => forward.inside(),
            None => self.answer(now_ns, protocol, public_port, peer)?,
        };
        packet.rewrite(Side::Destination, inside);
        Some(inside.0)
    }

    /// Forgets all flows, as a restarted router does. New flows get other ports.
    pub(crate) fn rebind(&mut self) {
        self.mappings.clear();
        self.owners.clear();
        self.rebinds = self.rebinds.wrapping_add(1);
    }

    fn map(
        &mut self,
        now_ns: u64,
        key: (PacketProtocol, PacketAddress),
        peer: PacketAddress,
    ) -> Option<u16> {
        let idle_ns = self.plan.idle_ns;
        let expired = |mapping: &Mapping| now_ns.saturating_sub(mapping.used_ns) > idle_ns;
        // An expired mapping is replaced, so its peers may no longer answer.
        if self.mappings.get(&key).is_some_and(expired) {
            self.forget(key);
        }
        if !self.mappings.contains_key(&key) {
            self.make_room();
            let public_port = self.free_port(key)?;
            self.owners.insert((key.0, public_port), key.1);
            let mapping = Mapping { public_port, used_ns: now_ns, peers: BTreeSet::new() };
            self.mappings.insert(key, mapping);
        }
        let mapping = self.mappings.get_mut(&key)?;
        mapping.used_ns = now_ns;
        if mapping.peers.len() >= PEERS_MAX {
            // Any peer may be forgotten; the list only must not grow without end.
            mapping.peers.pop_first();
        }
        mapping.peers.insert(peer);
        Some(mapping.public_port)
    }

    fn answer(
        &mut self,
        now_ns: u64,
        protocol: PacketProtocol,
        public_port: u16,
        peer: PacketAddress,
    ) -> Option<PacketAddress> {
        let inside = *self.owners.get(&(protocol, public_port))?;
        let mapping = self.mappings.get_mut(&(protocol, inside))?;
        let is_idle = now_ns.saturating_sub(mapping.used_ns) > self.plan.idle_ns;
        // An echo reply carries the translated identifier, not the original one.
        let is_known = mapping.peers.iter().any(|(address, port)| {
            *address == peer.0 && (*port == peer.1 || protocol == PacketProtocol::Icmp)
        });
        if is_idle || !is_known {
            return None;
        }
        mapping.used_ns = now_ns;
        Some(inside)
    }

    /// Returns the flow's own port if that is free, else the next free one; `None` if all are
    /// taken.
    fn free_port(&self, (protocol, inside): (PacketProtocol, PacketAddress)) -> Option<u16> {
        let is_free = |port: u16| {
            !self.owners.contains_key(&(protocol, port))
                && !self.plan.forwards.iter().any(|f| f.protocol == protocol && f.port == port)
        };
        if self.rebinds == 0 && is_free(inside.1) {
            return Some(inside.1);
        }
        // Ports given out are the upper half of all ports; the sum wraps within that half.
        let first = inside.1.wrapping_add(self.rebinds);
        (0..PORTS_GIVEN)
            .map(|step| PORTS_FROM + first.wrapping_add(step) % PORTS_GIVEN)
            .find(|port| *port != inside.1 && is_free(*port))
    }

    fn make_room(&mut self) {
        if self.mappings.len() < MAPPINGS_MAX {
            return;
        }
        let idlest = self.mappings.iter().min_by_key(|(_, mapping)| mapping.used_ns);
        if let Some((key, _)) = idlest {
            self.forget(*key);
        }
    }

    fn forget(&mut self, key: (PacketProtocol, PacketAddress)) {
        if let Some(mapping) = self.mappings.remove(&key) {
            self.owners.remove(&(key.0, mapping.public_port));
        }
    }
}

#[cfg(test)]
#[path = "nat_test.rs"]
mod tests;
