//! Health of replicas: observations of nodes and the belief of the cluster.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

use crate::NodeId;

/// Health of one replica: the observations of its region's nodes, and the cluster's belief.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Health {
    /// Epoch of the registration that was observed.
    pub epoch: u64,
    /// The cluster's belief.
    pub belief: Belief,
    /// Time of the last change of the belief, by the region's clock; None if it never changed.
    pub changed_ms: Option<u64>,
    /// The last observation of each node of the region.
    pub observers: BTreeMap<NodeId, Observed>,
}

/// Last observation of one node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Observed {
    /// State of the replica in the view of the node.
    pub belief: Belief,
    /// Number of independent signals for that view.
    pub signals: u8,
    /// Time of the observation, by the region's clock.
    pub at_ms: u64,
}

/// State of a replica, as a node or the cluster sees it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Belief {
    /// The replica works, as far as is known.
    // Up => Down
    #[default]
    Up,
    /// The replica does not work.
    // Down => Up
    Down,
}

impl Health {
    /// Returns the health of a replica that no node has observed yet.
    pub(crate) fn new(epoch: u64) -> Self {
        Self { epoch, belief: Belief::Up, changed_ms: None, observers: BTreeMap::new() }
    }
}

impl fmt::Display for Belief {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Up => "up",
            Self::Down => "down",
        })
    }
}
