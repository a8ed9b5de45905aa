//! Identities of nodes, disks and clusters.

use spillway_types::{DiskId, NodeName, RegionName};

/// Error of a system that has no random numbers.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no random numbers: {0}")]
pub struct RandomnessError(String);

/// Returns a new random id of a cluster or a disk.
///
/// # Errors
/// Returns an error if the system has no random numbers.
pub fn random_id<T: From<u128>>() -> Result<T, RandomnessError> {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes).map_err(|error| RandomnessError(error.to_string()))?;
    Ok(T::from(u128::from_le_bytes(bytes)))
}

/// Description of a node in the log, by which the other nodes know it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member {
    /// Name of the node, as in its certificate and on its link.
    pub name: NodeName,
    /// Region of the node.
    pub region: RegionName,
    /// Disk of the node.
    pub disk: DiskId,
}

/// Member without a name, for openraft's own tests.
#[cfg(test)]
impl Default for Member {
    fn default() -> Self {
        Self { name: "".into(), region: "".into(), disk: DiskId(0) }
    }
}
