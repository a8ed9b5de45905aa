//! Handing over the lead before a node ends.

use std::time::{Duration, Instant};

use spillway_consensus::{NodeId, Status};
use spillway_link::PeerStatus;

use crate::agreement::Agreement;

/// How long handing over the lead may take when a node ends.
const HAND_OVER_LIMIT: Duration = Duration::from_secs(3);
/// How long one voter may take to take the lead over: some round trips and its disk.
const HEIR_LIMIT: Duration = Duration::from_millis(1_500);

impl Agreement {
    /// Hands the lead over if this node has it, to a voter that is connected: for a node that is about
    /// to end, long before it does. It votes and follows as before. Tries one voter after the other
    /// for a short while; that none took the lead is logged.
    pub async fn hand_over(&self) {
        let Some(log) = self.log.get() else { return };
        let limit = Instant::now() + HAND_OVER_LIMIT;
        for heir in self.heirs(&log.status()) {
            let status = log.status();
            let left = limit.saturating_duration_since(Instant::now());
            if status.leader != Some(status.node) || left.is_zero() {
                return;
            }
            match log.transfer_leader(heir, left.min(HEIR_LIMIT)).await {
                Ok(()) => return tracing::info!(to = %heir, "handed the lead over"),
                Err(error) => tracing::info!(to = %heir, %error, "the lead was not handed over"),
            }
        }
    }

    /// The other voters that are connected: no other one can take the lead.
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
