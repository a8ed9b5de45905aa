//! A member of the cluster.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::NodeSpec;

/// A member of the cluster. The record does not show if the node lives: gossip does.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Node {
    /// The node's last description of itself.
    pub spec: NodeSpec,
    /// Role of the node, which decides if it may vote.
    pub role: NodeRole,
    /// Index of the entry by which the node joined.
    pub joined: u64,
}

/// Role of a node in the Raft group.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NodeRole {
    /// The node may vote; [`crate::voters()`] chooses.
    #[default]
    Any,
    /// The node follows the log and never votes.
    Learner,
}

impl fmt::Display for NodeRole {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Any => "any",
            Self::Learner => "learner",
        })
    }
}
