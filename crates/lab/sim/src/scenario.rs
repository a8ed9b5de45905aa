//! Scenario: a world with a workload, to be run with any router.

use std::time::Instant;

use spillway_engine::{EngineConfig, Profile};
use spillway_types::Speed;

use crate::router::{NodePosition, Router};
use crate::{
    Demand, Figures, News, RegionConfig, RouterConfig, Session, SpillwayRouter, WorkloadKind,
    World, WorldConfig,
};

/// Round-trip times in milliseconds between three regions, as between Europe, America and Asia.
pub(crate) const RTT_MS: [[f64; 3]; 3] =
    [[0.0, 90.0, 220.0], [90.0, 0.0, 150.0], [220.0, 150.0, 0.0]];

/// World with the requests of its clients.
#[derive(Clone, Debug)]
pub struct Scenario {
    /// Regions, replicas and delays.
    pub world: WorldConfig,
    /// Sessions of the clients.
    pub sessions: Vec<Session>,
}

/// Size and duration of a scenario.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Scale {
    /// Nodes in each region.
    pub nodes: usize,
    /// Replicas in each region.
    pub replicas: usize,
    /// Seconds of warm-up, which don't count.
    pub warm_up_s: f64,
    /// Seconds that count.
    pub seconds: f64,
    /// Seed of all random choices.
    pub seed: u64,
}

impl Default for Scale {
    fn default() -> Self {
        Self { nodes: 2, replicas: 4, warm_up_s: 60.0, seconds: 240.0, seed: 1 }
    }
}

impl Scenario {
    /// Returns a scenario of three regions with L4 replicas, each with this share of the full load
    /// of `kind`.
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
            engine: l4(),
            central: None,
            news: News::default(),
            patience_s: 30.0,
            warm_up_s: scale.warm_up_s,
            end_s,
            slow: Vec::new(),
            faults: Vec::new(),
            operator: crate::Operator::default(),
            tenants: Vec::new(),
            seed: scale.seed,
            origin,
        };
        Self { world, sessions: kind.sessions(&demand) }
    }

    /// Returns this scenario with all replicas in one region, and no delays.
    #[must_use]
    pub fn omniscient(&self) -> Self {
        let home = |session: &Session| Session { region: 0, ..session.clone() };
        Self { world: self.world.omniscient(), sessions: self.sessions.iter().map(home).collect() }
    }

    /// Longest prompt of a trace that is played, in tokens.
    pub const TRACE_TOKENS_MAX: u32 = 60_000;

    /// Runs the scenario; all nodes route with these settings, and know the size of the caches.
    #[must_use]
    pub fn run(&self, router: &RouterConfig) -> Figures {
        let speed = Speed { kv_tokens: self.world.kv_tokens(), ..router.speed };
        let operator = self.world.operator;
        let router = RouterConfig {
            speed,
            slo_ms: router.slo_ms.or(operator.slo_ms),
            connections_max: router.connections_max.or(operator.connections_max),
            speed_error: router.speed_error.max(self.world.news.speed_error as f32),
            ..*router
        };
        self.run_with(&mut |position| Box::new(SpillwayRouter::new(router, position)))
    }

    /// Runs the scenario with routers of any kind; see [`World::new`].
    #[must_use]
    pub fn run_with(&self, router: &mut dyn FnMut(&NodePosition) -> Box<dyn Router>) -> Figures {
        World::new(self.world.clone(), self.sessions.clone(), router).run()
    }
}

/// Returns the requests a second of each replica at full load: with more, the router that knows
/// everything serves fewer of them within 2 seconds. Measured with this simulator.
pub(crate) fn full_rate_per_s(kind: WorkloadKind) -> f64 {
    match kind {
        WorkloadKind::SystemPrompts | WorkloadKind::Bursts => 6.2,
        WorkloadKind::Chats => 2.6,
        WorkloadKind::Documents => 0.6,
        WorkloadKind::Hot => 3.4,
    }
}

/// Returns the settings of an A100 that takes the longest prompts of a trace.
pub(crate) fn a100() -> EngineConfig {
    EngineConfig {
        waiting_max: 512,
        context_tokens_max: 2 * Scenario::TRACE_TOKENS_MAX,
        ..EngineConfig::from_profile(Profile::A100)
    }
}

/// Returns the settings of Qwen3-32B on two H100, with contexts as long as the model's with YaRN.
pub(crate) fn h100() -> EngineConfig {
    EngineConfig {
        waiting_max: 512,
        context_tokens_max: 131_072,
        ..EngineConfig::from_profile(Profile::H100)
    }
}

/// Returns the settings of Llama-3.1-8B on one L4: the smallest cache of the published machines, so
/// that caches matter.
pub(crate) fn l4() -> EngineConfig {
    EngineConfig { waiting_max: 512, ..EngineConfig::from_profile(Profile::L4) }
}
