//! What was learned, for whoever decides or tells.

use std::collections::BTreeMap;
use std::sync::Arc;

use spillway_prefix::{HotStats, IndexStats};
use spillway_pulse::SharingCounters;
use spillway_types::{ModelName, RegionName, ReplicaName, Speed};

/// Speeds at one moment.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Published {
    /// Of each replica: with the model that it replied for most, where it has several.
    pub(crate) replicas: BTreeMap<ReplicaName, Speed>,
    /// Of the own region with each model: the mean of its replicas.
    pub(crate) models: BTreeMap<ModelName, Speed>,
}

impl Published {
    /// How fast a replica is; the usual profile, if nothing was learned.
    pub(crate) fn of_replica(&self, name: &ReplicaName) -> Speed {
        self.replicas.get(name).copied().unwrap_or_default()
    }

    /// How fast the own region is with a model; the usual profile, if nothing was learned.
    pub(crate) fn of_model(&self, name: &ModelName) -> Speed {
        self.models.get(name).copied().unwrap_or_default()
    }
}

/// Figures for metrics.
#[derive(Clone, Debug, Default)]
pub(crate) struct Figures {
    pub(crate) index: IndexStats,
    pub(crate) hot: HotStats,
    /// Hot blocks of each region.
    pub(crate) hot_regions: Arc<[(RegionName, u64)]>,
    pub(crate) sharing: SharingCounters,
    /// Latency models that are kept.
    pub(crate) models: u64,
    pub(crate) proposals: Proposals,
    /// What the own region's pages and health told that found no room to wait.
    pub(crate) events_dropped: u64,
}

/// What became of what this node proposed for the hot trie, since the start.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Proposals {
    pub(crate) applied: u64,
    /// By the cluster's rules, as with another key.
    pub(crate) refused: u64,
    /// No quorum in time, or no room for hints.
    pub(crate) failed: u64,
    /// Bytes of what was applied.
    pub(crate) bytes: u64,
}
