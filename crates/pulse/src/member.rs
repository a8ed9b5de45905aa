//! Who takes part.

use spillway_types::{NodeName, RegionName};

/// A node of the cluster and where it is.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Member {
    /// Its name, unique in the cluster.
    pub node: NodeName,
    /// The region it belongs to.
    pub region: RegionName,
}

impl Member {
    /// The member `node` of `region`.
    pub fn new(node: impl Into<NodeName>, region: impl Into<RegionName>) -> Self {
        Self { node: node.into(), region: region.into() }
    }
}
