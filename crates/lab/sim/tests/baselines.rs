//! Check that no baseline is worse than taking turns where caches make no difference.

use std::time::Instant;

use spillway_engine::{EngineConfig, Profile};
use spillway_sim::{
    Baseline, Figures, News, NodePosition, Piece, RegionConfig, Scenario, Session, Slo, Text, Time,
    Turn, WorldConfig,
};

/// Part of the goodput of taking turns that each baseline has to reach.
const PART_MIN: f64 = 0.98;

/// Requests a second of each region's clients: with a third more, the rules that choose by chance
/// or by the session fall behind, since here every session is one request.
const RATES_PER_S: [f64; 2] = [8.5, 7.0];

const SECONDS: f64 = 45.0;

fn engine() -> EngineConfig {
    EngineConfig { waiting_max: 512, ..EngineConfig::from_profile(Profile::L4) }
}

/// Returns a scenario of two regions in which no two prompts have anything in common.
#[expect(clippy::disallowed_methods, reason = "some moment has to stand for time 0")]
fn scenario() -> Scenario {
    let mut rng = fastrand::Rng::with_seed(5);
    let mut sessions = Vec::new();
    for (region, rate) in RATES_PER_S.into_iter().enumerate() {
        let mut at_s = 0.0;
        while at_s < SECONDS {
            at_s -= (1.0 - rng.f64()).ln() / rate;
            let prompt = Piece { id: rng.u64(..), tokens: rng.u32(100..700) };
            let reply = Piece { id: rng.u64(..), tokens: rng.u32(20..120) };
            let turn = Turn { after: None, think_us: 0, prompt: Text::new(vec![prompt]), reply };
            let (start, affinity) = (Time::from_s(at_s), rng.u64(..));
            sessions.push(Session { start, region, affinity, turns: vec![turn] });
        }
    }
    let world = WorldConfig {
        regions: vec![RegionConfig { nodes: 1, replicas: 4 }; 2],
        rtt_ms: vec![vec![0.0, 60.0], vec![60.0, 0.0]],
        engine: engine(),
        central: None,
        news: News::default(),
        patience_s: 30.0,
        warm_up_s: 5.0,
        end_s: SECONDS,
        slow: Vec::new(),
        faults: Vec::new(),
        operator: spillway_sim::Operator::default(),
        tenants: Vec::new(),
        seed: 1,
        origin: Instant::now(),
    };
    Scenario { world, sessions }
}

fn run(baseline: &Baseline) -> Figures {
    let mut scenario = scenario();
    scenario.world.central = baseline.is_central.then_some(0);
    let kv_tokens = Profile::L4.kv_tokens() as f32;
    scenario.run_with(&mut |position: &NodePosition| baseline.make(position, kv_tokens))
}

#[test]
fn without_reuse_no_baseline_is_worse_than_taking_turns() {
    let goodput = |baseline: &Baseline| run(baseline).goodput_by(&Slo::L4, &engine());
    let turns = ["round-robin-local", "round-robin-central"]
        .map(|name| goodput(&Baseline::named(name).unwrap()));
    for baseline in Baseline::all() {
        let (own, turns) = (goodput(&baseline), turns[usize::from(baseline.is_central)]);
        assert!(own >= PART_MIN * turns, "{}: {own} of {turns}", baseline.name);
    }
}
