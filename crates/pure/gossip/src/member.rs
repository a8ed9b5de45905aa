//! Members of the cluster.

use spillway_types::{NodeName, RegionName};

/// A node of the cluster and where it is.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct GossipMember {
    /// Name of the node, unique in the cluster.
    pub node: NodeName,
    /// Region of the node.
    pub region: RegionName,
}

impl GossipMember {
    /// Creates the member `node` of `region`.
    pub fn new(node: impl Into<NodeName>, region: impl Into<RegionName>) -> Self {
        Self { node: node.into(), region: region.into() }
    }
}
