//! A model server.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::ReplicaSpec;

/// A model server that its region registered.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Replica {
    /// What it is.
    pub spec: ReplicaSpec,
    /// Which start of the server this is, as the registration said.
    pub incarnation: u64,
    /// Index of the entry that registered it: grows with every registration, also when the
    /// replica was removed in between.
    pub epoch: u64,
    /// What it may be given. An operator's word outlives registrations.
    pub state: ReplicaState,
    /// The operator's weight, if there is one. It outlives registrations too.
    pub weight: Option<u32>,
}

/// What a replica may be given.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ReplicaState {
    /// Requests.
    // Active => Draining
    #[default]
    Active,
    /// Nothing new; what it has goes on.
    // Draining => (Active | Drained)
    Draining,
    /// Nothing, and it has nothing any more: its region said so.
    // Drained => Active
    Drained,
}

impl Replica {
    /// Its share of the work.
    #[must_use]
    pub fn weight(&self) -> u32 {
        self.weight.unwrap_or(self.spec.weight)
    }
}

impl ReplicaState {
    pub(crate) fn may_become(self, next: Self) -> bool {
        matches!(
            (self, next),
            (Self::Active, Self::Draining)
                | (Self::Draining, Self::Active | Self::Drained)
                | (Self::Drained, Self::Active)
        )
    }
}

impl fmt::Display for ReplicaState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Active => "active",
            Self::Draining => "draining",
            Self::Drained => "drained",
        })
    }
}
