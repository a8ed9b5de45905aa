//! What a world is made of.

use std::time::Instant;

use serde::Serialize;
use spillway_engine::EngineConfig;

/// Regions with their nodes and replicas, and how long everything takes between them.
#[derive(Clone, Debug)]
pub struct WorldConfig {
    /// The regions.
    pub regions: Vec<RegionConfig>,
    /// Milliseconds there and back between regions, by their numbers.
    pub rtt_ms: Vec<Vec<f64>>,
    /// Each replica.
    pub engine: EngineConfig,
    /// How and how late news travel.
    pub news: News,
    /// Requests that don't have their first token after so many seconds are given up.
    pub patience_s: f64,
    /// Requests that come before this many seconds have passed count for nothing: caches are cold.
    pub warm_up_s: f64,
    /// Requests that come after this many seconds count for nothing, and the load ends there.
    pub end_s: f64,
    /// Replicas that are slower than the others: number and how many times as long each step takes.
    pub slow: Vec<(usize, f64)>,
    /// Chooses what chance decides.
    pub seed: u64,
    /// The moment that stands for time 0 in what takes a clock's time; results don't depend on it.
    pub origin: Instant,
}

/// One region.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct RegionConfig {
    /// Gateways, each of which gets an equal part of the clients' requests.
    pub nodes: usize,
    /// Model servers.
    pub replicas: usize,
}

/// How late each kind of news is.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct News {
    /// Milliseconds between two looks at a replica, which are also what the look takes to be known:
    /// it is 100 to 200 ms old when it is used. 0 for what is true at each moment.
    pub signals_ms: f64,
    /// Milliseconds until what one node sent to a replica is known to the region's other nodes;
    /// `None` if they never learn.
    pub share_ms: Option<f64>,
    /// Milliseconds between two deltas of a region to the hot trie; `None` for no hot trie.
    pub hot_ms: Option<f64>,
    /// Milliseconds from a delta's proposal to its being applied everywhere.
    pub agree_ms: f64,
    /// Milliseconds from a node to a replica of its region, one way.
    pub hop_ms: f64,
}

impl Default for News {
    fn default() -> Self {
        Self {
            signals_ms: 100.0,
            share_ms: Some(30.0),
            hot_ms: Some(2_000.0),
            agree_ms: 300.0,
            hop_ms: 0.25,
        }
    }
}

impl News {
    /// Everything is known at once.
    #[must_use]
    pub fn instant() -> Self {
        Self { signals_ms: 0.0, share_ms: Some(0.0), hot_ms: None, ..Self::default() }
    }
}

impl WorldConfig {
    /// The world of one router that knows everything: all replicas in one region, nothing late.
    #[must_use]
    pub fn omniscient(&self) -> Self {
        let replicas = self.regions.iter().map(|region| region.replicas).sum();
        Self {
            regions: vec![RegionConfig { nodes: 1, replicas }],
            rtt_ms: vec![vec![0.0]],
            news: News::instant(),
            ..self.clone()
        }
    }

    /// The same with so many nodes in each region.
    #[must_use]
    pub fn with_nodes(&self, nodes: usize) -> Self {
        let mut config = self.clone();
        config.regions.iter_mut().for_each(|region| region.nodes = nodes);
        config
    }
}
