//! Position of a node in the world.

use std::sync::Arc;

/// Position at which a router runs, and the replicas that it owns.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodePosition {
    /// Number of the region in which the node runs.
    pub region: usize,
    /// Number of the node's own replicas: those of its region, or of all regions if it is central.
    pub replicas: usize,
    /// Number of regions in the world.
    pub regions: usize,
    /// True if the nodes of this region serve the clients of all regions.
    pub is_central: bool,
    /// Region of each own replica, by the replica's number.
    pub homes: Arc<[usize]>,
    /// Seed of the router's random choices.
    pub seed: u64,
}
