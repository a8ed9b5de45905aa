//! What a region's nodes say about one of its replicas.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

use crate::NodeId;

/// What a region's nodes say about one of its replicas, and what the cluster believes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Health {
    /// Of which registration.
    pub epoch: u64,
    /// What the cluster believes.
    pub belief: Belief,
    /// When that changed last, by the region's clock; none if it never did.
    pub changed_ms: Option<u64>,
    /// What each node of the region said last.
    pub observers: BTreeMap<NodeId, Observed>,
}

/// What one node said.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Observed {
    /// What the replica seems to be.
    pub belief: Belief,
    /// How many independent signals said so.
    pub signals: u8,
    /// When, by the region's clock.
    pub at_ms: u64,
}

/// Whether a replica works.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Belief {
    /// It does, as far as anybody knows.
    // Up => Down
    #[default]
    Up,
    /// It does not.
    // Down => Up
    Down,
}

impl Health {
    /// Nothing was said yet.
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
