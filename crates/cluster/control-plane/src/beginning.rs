//! The first step of a node: chosen by its data folder and its config.

use spillway_raft::{DiskId, NodeId, RaftStartError, owner_of, seed_ids};

use crate::config::ControlPlaneConfig;
use crate::join;

/// Way in which a node begins.
pub(crate) enum Beginning {
    /// The node has a number: the one in its folder, or its place among the seeds.
    Numbered(NodeId),
    /// The node has to join a running cluster, which gives it a number. The folder gets this disk
    /// id.
    Joining(DiskId),
}

impl Beginning {
    /// Chooses the way by the folder's owner, the join token and the seeds.
    ///
    /// # Errors
    /// Returns an error if the folder can't be read, or if neither folder nor config determines how
    /// to begin.
    pub(crate) fn of(config: &ControlPlaneConfig) -> Result<Self, RaftStartError> {
        let owner = owner_of(&config.folder)?;
        match (owner, &config.join_token) {
            // Begun, but in no cluster yet: the node has given no vote or promise that it must
            // keep.
            (Some(owner), Some(_)) if owner.cluster.is_none() => Ok(Self::Joining(owner.disk)),
            (Some(owner), _) => Ok(Self::Numbered(owner.node)),
            (None, Some(_)) => join::disk_to_join_with(&config.folder).map(Self::Joining),
            (None, None) => {
                let number = seed_ids(&config.seeds).get(&config.name).copied();
                number.map(Self::Numbered).ok_or_else(|| {
                    RaftStartError::Config(format!(
                        "{} is not among the nodes that form the cluster, and its folder is empty",
                        config.name
                    ))
                })
            }
        }
    }
}
