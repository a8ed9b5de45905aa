//! Hand-over of the leadership before a node stops.

use std::time::{Duration, Instant};

use spillway_link::PeerStatus;
use spillway_raft::{NodeId, Status};

use crate::control_plane::ControlPlane;

/// Time limit of the whole hand-over when a node stops.
const HAND_OVER_LIMIT: Duration = Duration::from_secs(3);
/// Time limit for one voter to take over: some round trips and its disk.
const HEIR_LIMIT: Duration = Duration::from_millis(1_500);

impl ControlPlane {
    /// Hands the leadership, if this node has it, to a connected voter. Meant for a node that is
    /// about to stop, long before it does: it goes on voting and following. Tries one voter after
    /// the other for up to 3 s, and logs each one that did not take over.
    pub async fn hand_over(&self) {
        let Some(log) = self.log() else { return };
        let limit = Instant::now() + HAND_OVER_LIMIT;
        for heir in self.heirs(&log.status()) {
            let status = log.status();
            let left = limit.saturating_duration_since(Instant::now());
            // Another node leads already, or the time is up.
            if status.leader != Some(status.node) || left.is_zero() {
                return;
            }
            match log.transfer_leader(heir, left.min(HEIR_LIMIT)).await {
                Ok(()) => return tracing::info!(to = %heir, "transferred leadership"),
                Err(error) => tracing::info!(to = %heir, %error, "leadership was not transferred"),
            }
        }
    }

    /// Returns the other voters that are connected: only these can take over.
    fn heirs(&self, status: &Status) -> Vec<NodeId> {
        let peers = self.link.peers();
        let is_connected = |id: &NodeId| {
            let name = status.members.get(id).map(|member| &member.name);
            let peer = peers.iter().find(|peer| Some(peer.identity.node()) == name);
            peer.is_some_and(PeerStatus::is_connected)
        };
        let others = status.voters.iter().copied().filter(|id| *id != status.node);
        others.filter(is_connected).collect()
    }
}
