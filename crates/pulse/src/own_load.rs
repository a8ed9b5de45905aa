//! What a node knows and tells.

use std::collections::BTreeMap;

use spillway_types::{ModelLoad, ModelName, ReplicaName};

/// All that one node knows of load at one moment. It replaces what it said before.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct OwnLoad {
    /// What this node has to do with each replica of its region. Told inside the region.
    pub replicas: BTreeMap<ReplicaName, ReplicaLoad>,
    /// What this node itself adds to the load of each model. Told inside the region.
    pub shares: BTreeMap<ModelName, ModelShare>,
    /// How the whole region stands, as this node computes it from its own and its peers' shares.
    /// Told to other regions while this node is the speaker.
    pub models: BTreeMap<ModelName, ModelLoad>,
}

/// What one node has to do with one replica.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ReplicaLoad {
    /// Requests of this node that are at the replica now.
    pub in_flight: u32,
    /// Prompt tokens that it is predicted to have to read still, of this node's requests.
    pub pending_tokens: u32,
    /// How many it would have there if no claim held it back: those in flight, and what waits in
    /// this node that could go there. At least `in_flight`. Says nothing without a limit.
    pub wanted: u32,
    /// How many the replica may have from all nodes together. `None`: as many as they like, and no
    /// claims are kept. All nodes of a region have to agree on it.
    pub limit: Option<u32>,
    /// What the replica says of itself, as far as this node knows.
    pub signals: ReplicaSignals,
}

/// What a replica says of itself. Unknown never means idle.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ReplicaSignals {
    /// Requests that wait there.
    pub queued: Option<f32>,
    /// Requests being worked on there.
    pub running: Option<f32>,
    /// Share of its KV cache in use, 0 to 1.
    pub kv_use: Option<f32>,
    /// How long ago it said so, milliseconds. Told as the next power of two times 125 ms, so that
    /// mere ageing is no change worth telling.
    pub age_ms: Option<u32>,
}

/// What one node adds to the load of one model.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ModelShare {
    /// Requests that wait in this node.
    pub waiting: u32,
    /// Requests of this node that end each second; `None` before any did.
    pub rate_per_s: Option<f32>,
}
