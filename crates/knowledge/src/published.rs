//! Published results of the thread that learns.

use std::collections::BTreeMap;
use std::sync::Arc;

use spillway_prefix::{HotStats, IndexStats};
use spillway_pulse::SharingCounters;
use spillway_types::{ModelName, RegionName, ReplicaName, Speed};

/// Speeds at one moment.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Published {
    /// Speed of each replica: with the model that it replied for most, where it has several.
    pub(crate) replicas: BTreeMap<ReplicaName, Speed>,
    /// Speed of the own region with each model: the mean of its replicas.
    pub(crate) models: BTreeMap<ModelName, Speed>,
}

impl Published {
    /// Returns the speed of a replica; the default profile, if nothing was learned.
    pub(crate) fn of_replica(&self, name: &ReplicaName) -> Speed {
        self.replicas.get(name).copied().unwrap_or_default()
    }

    /// Returns the speed of the own region with a model; the default profile, if nothing was
    /// learned.
    pub(crate) fn of_model(&self, name: &ModelName) -> Speed {
        self.models.get(name).copied().unwrap_or_default()
    }
}

/// Figures for metrics.
#[derive(Clone, Debug, Default)]
pub(crate) struct KnowledgeFigures {
    pub(crate) index: IndexStats,
    pub(crate) hot: HotStats,
    /// Number of hot blocks of each region.
    pub(crate) hot_regions: Arc<[(RegionName, u64)]>,
    pub(crate) sharing: SharingCounters,
    /// Number of latency models that are kept.
    pub(crate) models: u64,
    pub(crate) proposals: Proposals,
    /// Number of events and datagrams that found no room in their queues.
    pub(crate) events_dropped: u64,
}

/// Results of this node's proposals of hot blocks, since the start.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Proposals {
    pub(crate) applied: u64,
    /// Number of proposals refused by the cluster's rules, as with another key.
    pub(crate) refused: u64,
    /// Number of proposals that failed: no quorum in time, or no room for hints.
    pub(crate) failed: u64,
    /// Size of the applied proposals in bytes.
    pub(crate) bytes: u64,
}
