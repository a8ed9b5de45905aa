//! Comparison of the simulator with a cluster of three regions in real time.
//!
//! Takes five minutes, and is run by hand, where nothing else needs the processor:
//! `cargo test -p spillway-chaos --test simulated -- --ignored --nocapture`. `SPILLWAY_BIN` names
//! the `spillway` program; without it cargo builds it here. docs/measured/engine.md has results.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "what surrounds tests fails as they do; clippy knows only functions marked as tests"
)]

#[path = "../trial/built.rs"]
mod built;
mod clients;
mod cluster;
mod relay;
mod report;

use std::time::{Duration, Instant};

use spillway_harness::quantile;
use spillway_sim::{Cell, Conditions, Contender, Figures, Scenario, Traces};

use clients::LiveRun;
use cluster::{LiveCluster, REPLICAS};
use report::{figures, table};

/// Cell whose clients are taken, and how many of each region. The first region is at the limit of two
/// L4, so that it forwards requests.
const CELL: &str = "chat-40-30-30";
const CLIENTS: [usize; 3] = [40, 12, 12];
const SEED: u64 = 401;
/// Seconds of a run, the first of which don't count.
const END_S: f64 = 240.0;
const WARM_UP_S: f64 = 60.0;
/// Largest differences between the cluster and the simulator, as parts of the simulated figures.
const GOODPUT_OFF_MAX: f64 = 0.05;
const P95_OFF_MAX: f64 = 0.15;

/// Compares a run of real nodes and emulated replicas with the simulator's run of the same sessions.
///
/// By hand: `cargo test -p spillway-chaos --test simulated -- --ignored --nocapture`. If it
/// fails, look first at how late the clients' tasks were: on a busy machine they dominate all figures.
#[test]
#[ignore = "takes five minutes of real time and needs the processor for itself: \
            cargo test -p spillway-chaos --test simulated -- --ignored --nocapture"]
fn a_live_cluster_of_three_regions_does_as_the_simulator_says() {
    let cell = Cell::named(CELL).unwrap();
    let scenario = scenario(cell);
    let (world, slo) = (&scenario.world, cell.slo());
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let (live, rtts_ms) = runtime.block_on(run_live(&scenario)).unwrap();
    let simulated = Contender::specified("spillway").unwrap().run(&scenario);
    let lived = figures(&live.records, world);
    let lags = [0.5, 0.95, 0.99].map(|share| quantile(live.lags_ms.clone(), share).unwrap());
    eprintln!("{}", table(&[("live", &lived), ("simulated", &simulated)], &slo, world));
    eprintln!("round trips as measured, ms: {rtts_ms:.0?}");
    eprintln!("the clients' tasks were late by, ms: p50, p95, p99 {lags:.1?}");
    for failure in &live.failures {
        eprintln!("failed: {failure}");
    }
    assert_eq!((live.failures.len(), simulated.failed), (0, 0));
    // Otherwise the tested behaviour did not occur.
    assert!(lived.forwarded_share > 0.0);
    let off = |of: &dyn Fn(&Figures) -> f64| (of(&lived) / of(&simulated) - 1.0).abs();
    let goodput_off = off(&|figures| figures.goodput_by(&slo, &world.engine));
    let p95_off = off(&|figures| figures.p95_ms(&slo));
    assert!(goodput_off <= GOODPUT_OFF_MAX, "goodput is off by {goodput_off:.3}; lags {lags:.1?}");
    assert!(p95_off <= P95_OFF_MAX, "p95 is off by {p95_off:.3}; lags {lags:.1?}");
}

/// Returns the cell with fewer clients and replicas, and a shorter run.
fn scenario(cell: &Cell) -> Scenario {
    let replicas = Some(vec![REPLICAS; CLIENTS.len()]);
    let conditions = Conditions { replicas, ..Conditions::default() };
    let made = cell.scenario(&conditions, SEED, Instant::now(), &Traces::default());
    let mut scenario = made.unwrap();
    (scenario.world.warm_up_s, scenario.world.end_s) = (WARM_UP_S, END_S);
    let mut taken = [0; CLIENTS.len()];
    scenario.sessions.retain(|session| {
        taken[session.region] += 1;
        taken[session.region] <= CLIENTS[session.region]
    });
    scenario
}

/// Plays the scenario on real nodes. Returns also the round trips that these measured.
async fn run_live(scenario: &Scenario) -> anyhow::Result<(LiveRun, [f64; 3])> {
    let cluster = LiveCluster::start(&built::spillway(), &scenario.world.rtt_ms).await?;
    let run = clients::play(scenario.sessions.clone(), Duration::from_secs_f64(END_S)).await;
    let rtts_ms =
        [cluster.rtt_ms(0, 1).await?, cluster.rtt_ms(0, 2).await?, cluster.rtt_ms(1, 2).await?];
    Ok((run, rtts_ms))
}
