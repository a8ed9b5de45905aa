//! Everything that answers are made from.

use std::sync::Arc;

use spillway_cluster_state::State;
use spillway_control_plane::ControlPlane;
use spillway_raft::Read;
use tokio::sync::Semaphore;

use crate::access::Credential;
use crate::call::AdminCall;
use crate::config::AdminConfig;
use crate::error::{ApiError, LeaderHint};
use crate::fault;
use crate::own_limits::OwnLimits;

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
}

impl Cluster<'_> {
    /// Returns the leader, as far as this node knows.
    pub(crate) fn leader(&self) -> Option<LeaderHint> {
        leader_of(&self.control_plane)
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
