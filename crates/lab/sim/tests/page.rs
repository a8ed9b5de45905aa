//! The page docs/measured/simulation.md has the figures that the simulator makes.

use std::thread;
use std::time::Instant;

use spillway_route::Policy;
use spillway_sim::{Figures, Quantiles, Record, Scale, Scenario, Setup, WorkloadKind};

const PAGE: &str = include_str!("../../../../docs/measured/simulation.md");

/// Time to first token that is good, in milliseconds.
const GOOD_MS: f64 = 2_000.0;

/// Returns the figures of a line of the page by its first cells. Figures that runs no longer make,
/// `KV held` and `error`, are left out.
fn line(workload: &str, routing: &str) -> Option<Vec<&'static str>> {
    let begin = format!("| {workload} | {routing} | ");
    let line = PAGE.lines().find_map(|line| line.strip_prefix(&begin))?;
    let cells: Vec<&str> = line.split('|').map(str::trim).collect();
    Some([cells.get(..8)?, cells.get(9..12)?].concat())
}

/// Returns the same figures of a run.
fn figures(of: &Figures) -> Vec<String> {
    let first = of.first_token_ms;
    let ended = of.records.iter().filter_map(|record: &Record| record.ended_ms);
    let percent = |share: f64| format!("{:.1}", share * 100.0);
    vec![
        format!("{:.1}", of.goodput_per_s(GOOD_MS)),
        format!("{:.0}", first.p50),
        format!("{:.0}", first.p90),
        format!("{:.0}", first.p99),
        format!("{:.0}", Quantiles::of(ended.collect()).p50),
        percent(of.cached_share),
        format!("{:.2}", of.work_skew()),
        format!("{:.2}", of.request_skew()),
        percent(of.forwarded_share),
        percent(of.waited_share),
        of.failed.to_string(),
    ]
}

#[expect(clippy::disallowed_methods, reason = "some moment has to stand for time 0")]
fn scenario(kind: WorkloadKind) -> Scenario {
    let scale = Scale { seconds: 300.0, ..Scale::default() };
    Scenario::three_regions(kind, [0.7; 3], &scale, Instant::now())
}

// A few lines of the page: all of them take minutes without optimisation. For each workload, the
// policy beside the router that knows everything.
#[test]
fn the_page_of_the_simulation_has_the_figures_of_the_runs() {
    let policy = Policy::PredictedLatency;
    thread::scope(|scope| {
        for (workload, kind) in
            [("chats", WorkloadKind::Chats), ("documents", WorkloadKind::Documents)]
        {
            for (routing, setup) in [
                ("predicted_latency", Setup::policy(policy)),
                ("omniscient", Setup::omniscient(policy)),
            ] {
                scope.spawn(move || {
                    let made = figures(&setup.run(&scenario(kind)));
                    let written = line(workload, routing).unwrap_or_default();
                    assert_eq!(made, written, "{workload}, {routing}");
                });
            }
        }
    });
}
