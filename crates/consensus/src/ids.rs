//! Who takes part.

use std::fmt;

use serde::{Deserialize, Serialize};
use spillway_types::{NodeName, RegionName};

/// The number of a node in the log. It is never given to another node.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
pub struct NodeId(pub u64);

/// Which cluster a log belongs to. Chosen by chance when the cluster is formed, so that two that
/// were formed apart are never taken for one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ClusterId(pub u128);

/// Which disk a node keeps its log on. A node whose disk was wiped has another one, and is another
/// voter: the votes and entries that it promised to keep are gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct DiskId(pub u128);

/// The system has no random numbers.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no random numbers: {0}")]
pub struct NoRandomness(String);

fn random() -> Result<u128, NoRandomness> {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes).map_err(|error| NoRandomness(error.to_string()))?;
    Ok(u128::from_le_bytes(bytes))
}

impl ClusterId {
    /// A new one.
    ///
    /// # Errors
    /// If the system has no random numbers.
    pub fn random() -> Result<Self, NoRandomness> {
        random().map(Self)
    }
}

impl DiskId {
    /// A new one.
    ///
    /// # Errors
    /// If the system has no random numbers.
    pub fn random() -> Result<Self, NoRandomness> {
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

/// A node as the others know it from the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member {
    /// Its name, which is that of its certificate and of its link.
    pub name: NodeName,
    /// Its region.
    pub region: RegionName,
    /// Its disk.
    pub disk: DiskId,
}

impl From<u64> for NodeId {
    fn from(number: u64) -> Self {
        Self(number)
    }
}

/// For openraft's own tests, which have members without a name.
#[cfg(test)]
impl Default for Member {
    fn default() -> Self {
        Self { name: "".into(), region: "".into(), disk: DiskId(0) }
    }
}
