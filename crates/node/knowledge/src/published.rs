//! Published results of the thread that learns.

use std::collections::BTreeMap;
use std::sync::Arc;

use spillway_gossip::SharingCounters;
use spillway_prefix::{HotStats, IndexStats};
use spillway_types::{ModelName, RegionName, ReplicaName, Speed};

/// Speeds at one moment.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Published {
    /// Speed of each replica: with the model that it replied for most, where it has several.
    pub replicas: BTreeMap<ReplicaName, Speed>,
    /// Speed of the own region with each model: the mean of its replicas.
    pub models: BTreeMap<ModelName, Speed>,
}

impl Published {
    /// Returns the speed of a replica; the default profile, if nothing was learned.
    pub fn of_replica(&self, name: &ReplicaName) -> Speed {
        self.replicas.get(name).copied().unwrap_or_default()
    }

    /// Returns the speed of the own region with a model; the default profile, if nothing was
    /// learned.
    pub fn of_model(&self, name: &ModelName) -> Speed {
        self.models.get(name).copied().unwrap_or_default()
    }
}

/// Figures for metrics.
#[derive(Clone, Debug, Default)]
pub struct KnowledgeFigures {
    /// Size and use of the prefix index.
    pub index: IndexStats,
    /// Figures of the hot blocks of all regions.
    pub hot: HotStats,
    /// Number of hot blocks of each region.
    pub hot_regions: Arc<[(RegionName, u64)]>,
    /// Counts of prompts shared inside the region.
    pub sharing: SharingCounters,
    /// Figures of the KV events of engines.
    pub kv_events: KvFigures,
    /// Number of latency models that are kept.
    pub models: u64,
    /// Counts of proposals of hot blocks.
    pub proposals: Proposals,
    /// Number of events and datagrams that found no room in their queues.
    pub events_dropped: u64,
}

/// Figures of the KV events of engines.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KvFigures {
    /// Number of events since the start.
    pub events: u64,
    /// Number of times since the start that events were or may have been missed.
    pub missed: u64,
    /// Number of engine blocks that are known by events.
    pub blocks: u64,
    /// Number of replicas whose events are read.
    pub replicas: u64,
    /// Number of those whose events show what is evicted.
    pub live: u64,
}

/// Results of this node's proposals of hot blocks, since the start.
#[derive(Clone, Copy, Debug, Default)]
pub struct Proposals {
    /// Number of proposals that the cluster applied.
    pub applied: u64,
    /// Number of proposals refused by the cluster's rules, as with another key.
    pub refused: u64,
    /// Number of proposals that failed: no quorum in time, or no room for hints.
    pub failed: u64,
    /// Size of the applied proposals in bytes.
    pub bytes: u64,
}
