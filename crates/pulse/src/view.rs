//! What can be read.

use std::collections::BTreeMap;
use std::time::Instant;

use spillway_types::{ModelLoad, ModelName, NodeName, RegionName, ReplicaName};

use crate::{ModelShare, NameId, Reach, ReplicaSignals};

/// Another region as this node knows it.
#[derive(Clone, Debug, PartialEq)]
pub struct RegionView {
    /// Which.
    pub region: RegionName,
    /// Whether it can be reached.
    pub reach: Reach,
    /// How long ago it was heard, milliseconds; `None` if never.
    pub age_ms: Option<u32>,
    /// Since when it is reached both ways, without a break; where a ramp begins. `None` if it is
    /// not.
    pub reachable_since: Option<Instant>,
    /// Who told the figures below.
    pub speaker: Option<NodeName>,
    /// How each of its models stands, by [`NameId::of_model`].
    pub models: BTreeMap<NameId, ModelReport>,
}

impl RegionView {
    /// What the region says of a model; `None` if it does not serve it, as far as we know.
    #[must_use]
    pub fn model(&self, name: &ModelName) -> Option<&ModelReport> {
        self.models.get(&NameId::of_model(name))
    }
}

/// How a model stood in a region.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ModelReport {
    /// Its load then. Numbers are rounded by 2.5 % at most and were told when they had changed by
    /// more than [`crate::Config::ignored_permille`].
    pub load: ModelLoad,
    /// How long ago that was known to be so, milliseconds, without the time on the way.
    pub age_ms: u32,
}

/// Another node of the own region as this node knows it.
#[derive(Clone, Debug, PartialEq)]
pub struct PeerView {
    /// Which.
    pub node: NodeName,
    /// Whether it is heard. What a node that is not heard has in flight is anybody's guess.
    pub live: bool,
    /// How long ago it was heard, milliseconds; `None` if never.
    pub age_ms: Option<u32>,
    /// What it has to do with each replica, by [`NameId::of_replica`].
    pub replicas: BTreeMap<NameId, ReplicaReport>,
    /// What it adds to each model's load, by [`NameId::of_model`].
    pub shares: BTreeMap<NameId, ModelShare>,
}

impl PeerView {
    /// What it has to do with a replica; `None` if nothing, as far as we know.
    #[must_use]
    pub fn replica(&self, name: &ReplicaName) -> Option<&ReplicaReport> {
        self.replicas.get(&NameId::of_replica(name))
    }

    /// What it adds to a model's load; `None` if nothing, as far as we know.
    #[must_use]
    pub fn share(&self, name: &ModelName) -> Option<&ModelShare> {
        self.shares.get(&NameId::of_model(name))
    }
}

/// What the other nodes of the own region have at a replica, as they said last.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Elsewhere {
    /// Their requests there.
    pub in_flight: u32,
    /// Prompt tokens of those that the replica is predicted to have to read still, to 1 %.
    pub pending_tokens: u32,
}

/// What another node had to do with a replica.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ReplicaReport {
    /// Its requests there.
    pub in_flight: u32,
    /// Prompt tokens of those that the replica is predicted to have to read still, to 1 %.
    pub pending_tokens: u32,
    /// How many it claims, if the replica has a limit.
    pub claimed: u32,
    /// How many it would have there: those in flight, and what waits in it that could go there.
    pub wanted: u32,
    /// What it knows of the replica.
    pub signals: ReplicaSignals,
    /// How long ago that was known to be so, milliseconds, without the time on the way.
    pub age_ms: u32,
}
