//! A world with a workload, ready to be run with any router.

use std::time::Instant;

use spillway_engine::{EngineConfig, Profile};

use crate::router::Router;
use crate::{
    Demand, Figures, News, RegionConfig, RouterConfig, Session, SpillwayRouter, WorkloadKind,
    World, WorldConfig,
};

/// Milliseconds there and back between three regions: as from Europe to America to Asia.
const RTT_MS: [[f64; 3]; 3] = [[0.0, 90.0, 220.0], [90.0, 0.0, 150.0], [220.0, 150.0, 0.0]];

/// A world, and what its clients ask.
#[derive(Clone, Debug)]
pub struct Scenario {
    /// The world.
    pub world: WorldConfig,
    /// What is asked in it.
    pub sessions: Vec<Session>,
}

/// How large and how long.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Scale {
    /// Nodes in each region.
    pub nodes: usize,
    /// Replicas in each region.
    pub replicas: usize,
    /// Seconds before anything counts.
    pub warm_up_s: f64,
    /// Seconds that count.
    pub seconds: f64,
    /// Chooses what chance decides.
    pub seed: u64,
}

impl Default for Scale {
    fn default() -> Self {
        Self { nodes: 2, replicas: 4, warm_up_s: 60.0, seconds: 240.0, seed: 1 }
    }
}

impl Scenario {
    /// Three regions with L4 replicas, each with this share of the requests a second that `kind`
    /// has at full load.
    #[must_use]
    pub fn three_regions(
        kind: WorkloadKind,
        loads: [f64; 3],
        scale: &Scale,
        origin: Instant,
    ) -> Self {
        let full = full_rate_per_s(kind) * scale.replicas as f64;
        let end_s = scale.warm_up_s + scale.seconds;
        let demand = Demand {
            rates_per_s: loads.iter().map(|load| load * full).collect(),
            seconds: end_s,
            seed: scale.seed,
        };
        let region = RegionConfig { nodes: scale.nodes, replicas: scale.replicas };
        let world = WorldConfig {
            regions: vec![region; 3],
            rtt_ms: RTT_MS.iter().map(|row| row.to_vec()).collect(),
            engine: engine(),
            news: News::default(),
            patience_s: 30.0,
            warm_up_s: scale.warm_up_s,
            end_s,
            slow: Vec::new(),
            seed: scale.seed,
            origin,
        };
        Self { world, sessions: kind.sessions(&demand) }
    }

    /// The same with all replicas in one region and nothing late.
    #[must_use]
    pub fn omniscient(&self) -> Self {
        let home = |session: &Session| Session { region: 0, ..session.clone() };
        Self { world: self.world.omniscient(), sessions: self.sessions.iter().map(home).collect() }
    }

    /// The same with so many nodes in each region.
    #[must_use]
    pub fn with_nodes(&self, nodes: usize) -> Self {
        Self { world: self.world.with_nodes(nodes), sessions: self.sessions.clone() }
    }

    /// Longest prompt that is played of a trace, tokens.
    pub const TRACE_TOKENS_MAX: u32 = 60_000;

    /// The same with A100s, whose caches hold ten times as much: for traces of long prompts.
    #[must_use]
    pub fn with_large_caches(mut self) -> Self {
        let engine = EngineConfig::from_profile(Profile::A100);
        self.world.engine = EngineConfig {
            waiting_max: 512,
            context_tokens_max: 2 * Self::TRACE_TOKENS_MAX,
            ..engine
        };
        self
    }

    /// Runs it with nodes that all route in this way.
    #[must_use]
    pub fn run(&self, router: &RouterConfig) -> Figures {
        self.run_with(&mut |region, replicas, seed| {
            Box::new(SpillwayRouter::new(*router, region, replicas, seed))
        })
    }

    /// Runs it with routers of any kind: see [`World::new`].
    #[must_use]
    pub fn run_with(
        &self,
        router: &mut dyn FnMut(usize, usize, u64) -> Box<dyn Router>,
    ) -> Figures {
        World::new(self.world.clone(), self.sessions.clone(), router).run()
    }
}

/// Requests a second for each replica at full load: with more, the router that knows everything
/// serves fewer of them within 2 seconds, not more. Measured with this simulator.
fn full_rate_per_s(kind: WorkloadKind) -> f64 {
    match kind {
        WorkloadKind::SystemPrompts | WorkloadKind::Bursts => 6.2,
        WorkloadKind::Chats => 2.6,
        WorkloadKind::Documents => 0.6,
        WorkloadKind::Hot => 3.4,
    }
}

/// Llama-3.1-8B on one L4: the smallest cache of the published machines, so that it matters.
fn engine() -> EngineConfig {
    EngineConfig { waiting_max: 512, ..EngineConfig::from_profile(Profile::L4) }
}
