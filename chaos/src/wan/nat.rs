//! Address translation at the edge of a region, as a home router or a cloud's gateway does it.
//!
//! What leaves gets the region's public address, and its own port where that is free. What comes
//! in passes by a forwarded port, or as the answer from someone whom the inside has written to.

use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;

use serde::{Deserialize, Serialize};

use super::packet::{Endpoint, Packet, Protocol, Side};

/// Flows that a region remembers; the one idle for longest makes room. A small router has as many.
pub const MAPPINGS_MAX: usize = 4096;

/// Peers that one mapping remembers; the first ones are forgotten first.
const PEERS_MAX: usize = 1024;

/// Ports given out when a flow's own is taken: those that nobody listens on by custom.
const PORTS_FROM: u16 = 32_768;
const PORTS_GIVEN: u16 = 32_768;

/// A port of the public address that leads to one inside.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Forward {
    /// `tcp` or `udp`.
    pub protocol: Protocol,
    /// The port of the public address.
    pub port: u16,
    /// The inside address.
    pub to: Ipv4Addr,
    /// The inside port; the same one if not named.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub to_port: Option<u16>,
}

impl Forward {
    fn inside(&self) -> Endpoint {
        (self.to, self.to_port.unwrap_or(self.port))
    }
}

/// What the config says about a region's translation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NatPlan {
    /// The only address of the region that others see.
    pub public: Ipv4Addr,
    /// A mapping without a packet for this long is forgotten.
    pub idle_ns: u64,
    /// Ports that lead inside.
    pub forwards: Vec<Forward>,
}

#[derive(Debug)]
struct Mapping {
    public_port: u16,
    used_ns: u64,
    /// Whom the inside has written to: only they may answer.
    peers: BTreeSet<Endpoint>,
}

/// The translation of one region.
#[derive(Debug)]
pub(crate) struct Nat {
    pub(crate) plan: NatPlan,
    mappings: BTreeMap<(Protocol, Endpoint), Mapping>,
    /// Which inside endpoint has a public port.
    owners: BTreeMap<(Protocol, u16), Endpoint>,
    /// How often all was forgotten on command; ports are given out differently each time.
    rebinds: u16,
}

impl Nat {
    pub(crate) fn new(plan: NatPlan) -> Self {
        Self { plan, mappings: BTreeMap::new(), owners: BTreeMap::new(), rebinds: 0 }
    }

    /// Gives a packet that leaves the public address; `None` if that is not possible.
    pub(crate) fn leave(&mut self, now_ns: u64, packet: &mut Packet<'_>) -> Option<()> {
        let (protocol, inside, peer) = packet.flow()?;
        let forward = self
            .plan
            .forwards
            .iter()
            .find(|forward| forward.protocol == protocol && forward.inside() == inside);
        let public_port = match forward {
            Some(forward) => forward.port,
            None => self.map(now_ns, (protocol, inside), peer)?,
        };
        packet.rewrite(Side::Source, (self.plan.public, public_port));
        Some(())
    }

    /// Gives a packet that arrives at the public address its place inside; `None` refuses it.
    pub(crate) fn arrive(&mut self, now_ns: u64, packet: &mut Packet<'_>) -> Option<Ipv4Addr> {
        let (protocol, peer, (_, public_port)) = packet.flow()?;
        let forward = self
            .plan
            .forwards
            .iter()
            .find(|forward| forward.protocol == protocol && forward.port == public_port);
        let inside = match forward {
            Some(forward) => forward.inside(),
            None => self.answer(now_ns, (protocol, public_port), peer)?,
        };
        packet.rewrite(Side::Destination, inside);
        Some(inside.0)
    }

    /// Forgets all flows, as a restarted router does; new ones get other ports.
    pub(crate) fn rebind(&mut self) {
        self.mappings.clear();
        self.owners.clear();
        self.rebinds = self.rebinds.wrapping_add(1);
    }

    fn map(&mut self, now_ns: u64, key: (Protocol, Endpoint), peer: Endpoint) -> Option<u16> {
        let idle_ns = self.plan.idle_ns;
        let expired = |mapping: &Mapping| now_ns.saturating_sub(mapping.used_ns) > idle_ns;
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
            mapping.peers.pop_first();
        }
        mapping.peers.insert(peer);
        Some(mapping.public_port)
    }

    fn answer(
        &mut self,
        now_ns: u64,
        (protocol, public_port): (Protocol, u16),
        peer: Endpoint,
    ) -> Option<Endpoint> {
        let inside = *self.owners.get(&(protocol, public_port))?;
        let mapping = self.mappings.get_mut(&(protocol, inside))?;
        let is_idle = now_ns.saturating_sub(mapping.used_ns) > self.plan.idle_ns;
        // An echo reply carries the translated identifier, not the one that was asked with.
        let is_known = mapping.peers.iter().any(|(address, port)| {
            *address == peer.0 && (*port == peer.1 || protocol == Protocol::Icmp)
        });
        if is_idle || !is_known {
            return None;
        }
        mapping.used_ns = now_ns;
        Some(inside)
    }

    /// The flow's own port if it is free, else the next free one.
    fn free_port(&self, (protocol, inside): (Protocol, Endpoint)) -> Option<u16> {
        let is_free = |port: u16| {
            !self.owners.contains_key(&(protocol, port))
                && !self.plan.forwards.iter().any(|f| f.protocol == protocol && f.port == port)
        };
        if self.rebinds == 0 && is_free(inside.1) {
            return Some(inside.1);
        }
        // Halves of the 65,536 ports: the sum wraps within the upper one.
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

    fn forget(&mut self, key: (Protocol, Endpoint)) {
        if let Some(mapping) = self.mappings.remove(&key) {
            self.owners.remove(&(key.0, mapping.public_port));
        }
    }
}

#[cfg(test)]
#[path = "nat_test.rs"]
mod tests;
