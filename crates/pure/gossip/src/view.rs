//! Views of other regions and nodes.

use std::collections::BTreeMap;
use std::time::Instant;

use spillway_types::{ModelLoad, ModelName, NodeName, RegionName, ReplicaName};

use crate::{ModelShare, NameId, Reach, ReplicaSignals};

/// Another region as this node knows it.
#[derive(Clone, Debug, PartialEq)]
pub struct RegionView {
    /// Name of the region.
    pub region: RegionName,
    /// Reach of the region.
    pub reach: Reach,
    /// Time since the last datagram of the region, milliseconds; `None` if there was none.
    pub age_ms: Option<u32>,
    /// Moment since which the region is reached both ways without a break, where a ramp begins;
    /// `None` if it is not.
    pub reachable_since: Option<Instant>,
    /// Node that reported the figures below.
    pub speaker: Option<NodeName>,
    /// Load of each of its models, by [`NameId::of_model`].
    pub models: BTreeMap<NameId, ModelReport>,
    /// Load of all its replicas together: a replica of several models is part of the load of each.
    /// `None` if the speaker does not report it.
    pub whole: Option<ModelReport>,
}

/// Name under which [`OwnLoad::models`](crate::OwnLoad::models) has the load of all replicas of the
/// region together. No model has this name.
pub const WHOLE_REGION: &str = "";

impl RegionView {
    /// Returns the region's report on a model; `None` if it does not serve the model, as far as we
    /// know.
    #[must_use]
    pub fn model(&self, name: &ModelName) -> Option<&ModelReport> {
        self.models.get(&NameId::of_model(name))
    }
}

/// Load of a model in a region, and its age.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ModelReport {
    /// Load at that time. Numbers are rounded by at most 2.5 %, and were reported when they had
    /// changed by more than [`crate::GossipConfig::ignored_permille`].
    pub load: ModelLoad,
    /// Age of the load, milliseconds, without the time in transit.
    pub age_ms: u32,
}

/// Another node of the own region as this node knows it.
#[derive(Clone, Debug, PartialEq)]
pub struct PeerView {
    /// Name of the node.
    pub node: NodeName,
    /// True if datagrams of the node arrive. The requests in flight of a silent node are unknown.
    pub live: bool,
    /// Time since the last datagram of the node, milliseconds; `None` if there was none.
    pub age_ms: Option<u32>,
    /// Load of the node at each replica, by [`NameId::of_replica`].
    pub replicas: BTreeMap<NameId, ReplicaReport>,
    /// Share of the node in each model's load, by [`NameId::of_model`].
    pub shares: BTreeMap<NameId, ModelShare>,
}

impl PeerView {
    /// Returns the node's load at a replica; `None` if it has none there, as far as we know.
    #[must_use]
    pub fn replica(&self, name: &ReplicaName) -> Option<&ReplicaReport> {
        self.replicas.get(&NameId::of_replica(name))
    }

    /// Returns the node's share in a model's load; `None` if it has none, as far as we know.
    #[must_use]
    pub fn share(&self, name: &ModelName) -> Option<&ModelShare> {
        self.shares.get(&NameId::of_model(name))
    }
}

/// Load of the other nodes of the own region at a replica, by their last reports.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Elsewhere {
    /// Requests of those nodes at the replica.
    pub in_flight: u32,
    /// Prompt tokens of those requests that the replica is predicted to have still to read, to 1 %.
    pub pending_tokens: u32,
}

/// Load of another node at a replica.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ReplicaReport {
    /// Requests of that node at the replica.
    pub in_flight: u32,
    /// Prompt tokens of those requests that the replica is predicted to have still to read, to 1 %.
    pub pending_tokens: u32,
    /// Requests that the node claims, if the replica has a limit.
    pub claimed: u32,
    /// Requests that the node would have there: those in flight, and those waiting in it that could
    /// go there.
    pub wanted: u32,
    /// Figures of the replica that the node knows.
    pub signals: ReplicaSignals,
    /// Age of this report, milliseconds, without the time in transit.
    pub age_ms: u32,
}
