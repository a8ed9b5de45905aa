//! Looks of nodes at the limits of the requests in flight at their replicas.

use spillway_gossip::{GossipMachine, PeerView};
use spillway_route::Sharer;
use spillway_types::ReplicaName;

use super::found_limit::Demand;
use super::{World, WorldEvent};

/// Microseconds between two looks at the limits, as in nodes.
const PERIOD_US: u64 = 100_000;

impl World {
    /// Adds the first look at the limits of each group whose nodes keep to them.
    pub(super) fn begin_limits(&mut self) {
        for group in 0..self.groups.len() {
            let nodes = &self.nodes[self.groups[group].nodes.clone()];
            if nodes.iter().any(|node| node.router.in_flight_max().is_some()) {
                self.agenda.put(self.now, WorldEvent::FindLimits { group });
            }
        }
    }

    /// Lets the nodes of a group update their limits, and call their waiting requests.
    pub(super) fn find_limits(&mut self, group: usize) {
        let next = self.now.after_us(PERIOD_US);
        self.agenda.put(next, WorldEvent::FindLimits { group });
        if self.is_region_lost(self.groups[group].region) {
            return;
        }
        let instant = self.instant();
        let is_instant = self.config.news.signals_ms <= 0.0;
        for node in self.groups[group].nodes.clone() {
            let node = &mut self.nodes[node];
            let peers = node.gossip.machine.peers(instant);
            for (replica, name) in self.groups[group].names.replicas.iter().enumerate() {
                let demand = demand(&node.gossip.machine, &peers, name);
                let sight = &mut node.replicas[replica];
                let limit = &mut node.limits[replica];
                if is_instant && !sight.is_away {
                    limit.reported(instant, &sight.signals);
                }
                limit.look(sight.in_flight, &mut sight.slots, demand, instant);
            }
        }
        for node in self.groups[group].nodes.clone() {
            self.wake(node);
        }
    }
}

/// Returns the load at a replica that the other nodes of a region, in `peers`, reported.
fn demand(machine: &GossipMachine, peers: &[PeerView], replica: &ReplicaName) -> Demand {
    let me = &machine.me().node;
    let sharer = |peer: &PeerView| {
        let wanted = peer.replica(replica).filter(|_| peer.live)?.wanted;
        Some(Sharer { wanted, is_before: peer.node < *me })
    };
    let sharers = peers.iter().filter_map(sharer).collect();
    Demand { in_flight: machine.elsewhere(replica).in_flight, sharers }
}
