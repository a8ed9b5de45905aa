//! Replicas.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::ReplicaSpec;

/// A replica: a model server that is registered in a region.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Replica {
    /// Address, models and other properties.
    pub spec: ReplicaSpec,
    /// Number of the server's start, from the registration.
    pub incarnation: u64,
    /// Index of the entry that registered the replica. Each new registration has a higher one, even
    /// if the replica was removed in between.
    pub epoch: u64,
    /// Operating state. An operator's order stays when the replica registers again.
    pub state: ReplicaState,
    /// Weight that an operator set; None for the weight of the spec. It stays when the replica
    /// registers again.
    pub weight: Option<u32>,
}

/// Operating state of a replica.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ReplicaState {
    /// The replica gets requests.
    // Active => Draining
    #[default]
    Active,
    /// The replica gets no new requests and finishes those that it has.
    // Draining => (Active | Drained)
    Draining,
    /// The replica gets no requests and has none left, as its region reported.
    // Drained => Active
    Drained,
}

impl Replica {
    /// Returns the weight in load balancing: the operator's, or else that of the spec.
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
