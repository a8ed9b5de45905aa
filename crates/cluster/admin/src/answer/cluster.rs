//! Everything that answers are made from.

use std::sync::Arc;
use std::time::Duration;

use spillway_cluster_state::State;
use spillway_control_plane::ControlPlane;
use spillway_raft::Read;
use spillway_rate_limit::OwnLimits;
use tokio::sync::{Semaphore, watch};
use tokio::time::timeout;

use crate::access::Credential;
use crate::all_nodes::AllNodes;
use crate::call::AdminCall;
use crate::config::AdminConfig;
use crate::error::{ApiError, LeaderHint};
use crate::fault;
use crate::overview::Overview;
use crate::route_check::RouteCheck;

/// Longest wait for this node to apply a write.
const SETTLED_WITHIN: Duration = Duration::from_secs(1);

/// Services and state that answers are made from.
pub(crate) struct Cluster<'a> {
    pub(crate) control_plane: Arc<ControlPlane>,
    pub(crate) config: &'a AdminConfig,
    pub(crate) watchers: &'a Arc<Semaphore>,
    pub(crate) backups: &'a Arc<Semaphore>,
    /// Credential of the caller.
    pub(crate) credential: &'a Credential,
    /// Limits of this node's config file.
    pub(crate) own_limits: Option<&'a dyn OwnLimits>,
    /// Check of routes; `None` where records have no settings of config files.
    pub(crate) route_check: Option<&'a dyn RouteCheck>,
    /// Index of the state whose keys this node admits; `None` where nothing follows them.
    pub(crate) admitted: Option<&'a watch::Receiver<u64>>,
    /// This node's knowledge of replicas and regions; `None` where dry runs estimate no moves.
    pub(crate) overview: Option<&'a dyn Overview>,
    /// Asks the other nodes; `None` where dry runs estimate no moves.
    pub(crate) all_nodes: Option<&'a dyn AllNodes>,
}

impl Cluster<'_> {
    /// Returns the leader, as far as this node knows.
    pub(crate) fn leader(&self) -> Option<LeaderHint> {
        leader_of(&self.control_plane)
    }

    /// Waits until the write at `index` holds for requests to this node, for a second at most. The
    /// write is done even if this node has not applied it.
    pub(super) async fn settle(&self, index: u64) {
        let is_there = |seen: &u64| *seen >= index;
        let mut published = self.control_plane.publications();
        let mut admitted = self.admitted.cloned();
        let settled = async {
            drop(published.wait_for(is_there).await);
            if let Some(admitted) = &mut admitted {
                drop(admitted.wait_for(is_there).await);
            }
        };
        if timeout(SETTLED_WITHIN, settled).await.is_err() {
            tracing::debug!(index, "written, and not known here yet");
        }
    }

    /// Calls `look` with the state, as fresh as the request asks for.
    pub(super) async fn read<R>(
        &self,
        call: &AdminCall,
        look: impl FnOnce(&State) -> R,
    ) -> Result<Read<R>, ApiError> {
        let read = self.control_plane.read(call.query.consistency, self.config.time_limit, look);
        read.await.map_err(|error| fault::of_read(error, self.leader()))
    }
}

/// Returns the leader, as far as this node knows.
pub(super) fn leader_of(control_plane: &ControlPlane) -> Option<LeaderHint> {
    let (node, region) = control_plane.leader()?;
    Some(LeaderHint { node: node.to_string(), region: region.to_string() })
}
