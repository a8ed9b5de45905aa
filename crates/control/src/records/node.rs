//! A member of the cluster.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::NodeSpec;

/// A member of the cluster. Whether it lives is not known here: gossip knows.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Node {
    /// What it said of itself last.
    pub spec: NodeSpec,
    /// Whether it may vote.
    pub role: NodeRole,
    /// Index of the entry that let it in.
    pub joined: u64,
}

/// Whether a node may vote.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NodeRole {
    /// The rule chooses.
    #[default]
    Any,
    /// It follows the log and never votes.
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
