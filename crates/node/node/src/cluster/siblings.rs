//! Load of the region's nodes at the region's replicas: this node's is sent, and that of the others
//! is noted.

use std::sync::Arc;

use spillway_gossip::{GossipMachine, NameId, PeerView, ReplicaCounts};
use spillway_route::Sharer;
use spillway_view::{Replica, View};

/// Reports to the region's other nodes how much work of this node each replica has now, and notes
/// their reports.
pub(super) fn count(gossip: &mut GossipMachine, view: &View) {
    let counts = |replica: &Arc<Replica>| {
        let (in_flight, pending_tokens) = (replica.in_flight(), replica.pending_tokens());
        let id = NameId::of_replica(&replica.spec().name);
        (id, ReplicaCounts { in_flight, pending_tokens })
    };
    gossip.set_counts(view.replicas().iter().map(counts));
    for replica in view.replicas() {
        let elsewhere = gossip.elsewhere(&replica.spec().name);
        replica.note_elsewhere(elsewhere.in_flight, elsewhere.pending_tokens);
    }
}

/// Shares the slots of each replica with the region's other nodes, which `peers` has.
pub(super) fn share(gossip: &GossipMachine, peers: &[PeerView], view: &View) {
    let me = &gossip.me().node;
    for replica in view.replicas() {
        let name = &replica.spec().name;
        // Without a claim the node may use all slots of the replica.
        replica.set_claim(gossip.claim(name).unwrap_or(u32::MAX));
        let elsewhere = gossip.elsewhere(name);
        let sharer = |peer: &PeerView| {
            let wanted = peer.replica(name).filter(|_| peer.live)?.wanted;
            Some(Sharer { wanted, is_before: peer.node < *me })
        };
        let sharers = peers.iter().filter_map(sharer).collect();
        replica.set_elsewhere(elsewhere.in_flight, sharers, elsewhere.pending_tokens);
    }
}
