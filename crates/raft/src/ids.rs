//! Identities of nodes, disks and clusters.

use std::fmt;

use serde::{Deserialize, Serialize};
use spillway_types::{NodeName, RegionName};

/// Number of a node in the log, never given to another node.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
pub struct NodeId(pub u64);

/// Identity of a cluster. Chosen at random when the cluster is formed, so that clusters that were
/// formed apart have different ids.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ClusterId(pub u128);

/// Identity of the disk that holds a node's log. A node whose disk was wiped has a new one and
/// counts as another voter: the votes and entries that it promised to keep are gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct DiskId(pub u128);

/// Error of a system that has no random numbers.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no random numbers: {0}")]
pub struct RandomnessError(String);

fn random() -> Result<u128, RandomnessError> {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes).map_err(|error| RandomnessError(error.to_string()))?;
    Ok(u128::from_le_bytes(bytes))
}

impl ClusterId {
    /// Returns a new random id.
    ///
    /// # Errors
    /// Returns an error if the system has no random numbers.
    pub fn random() -> Result<Self, RandomnessError> {
        random().map(Self)
    }
}

impl DiskId {
    /// Returns a new random id.
    ///
    /// # Errors
    /// Returns an error if the system has no random numbers.
    pub fn random() -> Result<Self, RandomnessError> {
        random().map(Self)
    }
}

impl fmt::Display for NodeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Display for ClusterId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

impl fmt::Display for DiskId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
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

impl From<u64> for NodeId {
    fn from(number: u64) -> Self {
        Self(number)
    }
}

/// Member without a name, for openraft's own tests.
#[cfg(test)]
impl Default for Member {
    fn default() -> Self {
        Self { name: "".into(), region: "".into(), disk: DiskId(0) }
    }
}
