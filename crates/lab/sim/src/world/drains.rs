//! Targets that are being drained, which get no new requests and which streams leave, and requests
//! that kill engines.

use super::World;
use super::fault::FaultKind;

/// Number of the token by which a poisonous request kills its engine.
const POISON_TOKEN: u32 = 3;

impl World {
    /// Returns true if a replica is being drained.
    pub(super) fn is_replica_drained(&self, replica: usize) -> bool {
        self.faults.iter().any(|fault| fault.kind == FaultKind::ReplicaDrained { replica })
    }

    /// Returns true if a region is being drained.
    pub(super) fn is_region_drained(&self, region: usize) -> bool {
        self.faults.iter().any(|fault| fault.kind == FaultKind::RegionDrained { region })
    }

    /// Returns true if it is known in a region that another one is being drained.
    pub(super) fn is_known_to_leave(&self, home: usize, region: usize) -> bool {
        let drained = FaultKind::RegionDrained { region };
        let way_us = self.way_us(region, home);
        let is_known = |begin: crate::Time| begin.after_us(way_us) <= self.now;
        self.faults.iter().any(|fault| fault.kind == drained && is_known(fault.begin()))
    }

    /// Lets the nodes that may ask a replica know that it is being drained.
    pub(super) fn drain_replica(&mut self, replica: usize) {
        for node in &mut self.nodes {
            let served = self.groups[node.group].replicas.clone();
            if served.contains(&replica) {
                node.replicas[replica - served.start].is_away = true;
            }
        }
    }

    /// Lets the nodes of a region know whether it is being drained.
    pub(super) fn drain_region(&mut self, region: usize) {
        let is_drained = self.is_region_drained(region);
        for node in &mut self.nodes {
            if self.groups[node.group].region == region {
                node.router.set_evacuated(is_drained);
            }
        }
    }

    /// Returns true if a request has just generated the token that kills its engine.
    pub(super) fn is_poison(&self, request: usize) -> bool {
        let asked = &self.requests[request];
        let poison = FaultKind::Poison { session: asked.session };
        asked.generated == POISON_TOKEN && self.faults.iter().any(|fault| fault.kind == poison)
    }
}
