//! How a node begins: by what its folder and its config say.

use spillway_consensus::{DiskId, NodeId, StartFault, owner_of, seed_ids};

use crate::config::AgreementConfig;
use crate::join;

/// How a node begins.
pub(crate) enum Beginning {
    /// It has a number: its folder's, or its place among those that form the cluster.
    Numbered(NodeId),
    /// A cluster that runs already has to give it one; its folder is, or will be, this disk.
    Joining(DiskId),
}

impl Beginning {
    /// # Errors
    /// If the folder can't be read, or nobody says how to begin.
    pub(crate) fn of(config: &AgreementConfig) -> Result<Self, StartFault> {
        let owner = owner_of(&config.folder)?;
        match (owner, &config.join_token) {
            // Begun and in no cluster yet: nothing was promised to anybody.
            (Some(owner), Some(_)) if owner.cluster.is_none() => Ok(Self::Joining(owner.disk)),
            (Some(owner), _) => Ok(Self::Numbered(owner.node)),
            (None, Some(_)) => join::disk_to_join_with(&config.folder).map(Self::Joining),
            (None, None) => {
                let number = seed_ids(&config.seeds).get(&config.name).copied();
                number.map(Self::Numbered).ok_or_else(|| {
                    StartFault::Config(format!(
                        "{} is not among the nodes that form the cluster, and its folder is empty",
                        config.name
                    ))
                })
            }
        }
    }
}
