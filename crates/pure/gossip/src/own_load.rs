//! Load that one node measures and reports.

use std::collections::BTreeMap;

use spillway_types::{ModelLoad, ModelName, ReplicaName};

/// Everything that one node knows of load at one moment. Replaces its earlier reports.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct OwnLoad {
    /// Load of this node at each replica of its region. Told inside the region.
    pub replicas: BTreeMap<ReplicaName, ReplicaLoad>,
    /// Share of this node in the load of each model. Told inside the region.
    pub shares: BTreeMap<ModelName, ModelShare>,
    /// Load of the whole region, as this node computes it from its own and its peers' shares. Told
    /// to other regions while this node is the speaker.
    pub models: BTreeMap<ModelName, ModelLoad>,
}

/// Load of one node at one replica.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ReplicaLoad {
    /// Requests of this node that are at the replica now.
    pub in_flight: u32,
    /// Prompt tokens of this node's requests that the replica is predicted to have still to read.
    pub pending_tokens: u32,
    /// Requests that the node would have there if no claim held them back: those in flight, and
    /// those waiting in this node that could go there. At least `in_flight`. Not used without a
    /// limit.
    pub wanted: u32,
    /// Requests that the replica may have from all nodes together. `None`: no limit, and no claims
    /// are kept. All nodes of a region have to agree on it.
    pub limit: Option<u32>,
    /// Figures of the replica itself, as far as this node knows.
    pub signals: ReplicaSignals,
}

/// Numbers of one node's load at one replica that every request changes: those of a [`ReplicaLoad`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReplicaCounts {
    /// Requests of this node that are at the replica now.
    pub in_flight: u32,
    /// Prompt tokens of these requests that the replica is predicted to have still to read.
    pub pending_tokens: u32,
}

/// Figures that a replica gives of itself. Unknown never means idle.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ReplicaSignals {
    /// Requests that wait there.
    pub queued: Option<f32>,
    /// Requests being worked on there.
    pub running: Option<f32>,
    /// Share of its KV cache in use, 0 to 1.
    pub kv_use: Option<f32>,
    /// Age of the figures, milliseconds. Reported as the next power of two times 125 ms, so that
    /// ageing alone is no change worth reporting.
    pub age_ms: Option<u32>,
}

/// Share of one node in the load of one model.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ModelShare {
    /// Requests that wait in this node.
    pub waiting: u32,
    /// Requests of this node that end each second; `None` before any did.
    pub rate_per_s: Option<f32>,
}
