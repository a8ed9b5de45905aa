//! Time of a whole decision of `predicted_latency`, at the median and at worst, and its allocations:
//! one request with a prompt of 4,096 tokens, among so many replicas and regions.
//!
//! The other policies are in the benchmark `plan`.
//! Run with `cargo bench -p spillway-route --bench decision`. The look-up of the prompt is left
//! out: `spillway-prefix` measures that.

#[path = "decision/regions.rs"]
mod regions;
#[path = "decision/world.rs"]
mod world;

use std::hint::black_box;
use std::time::Instant;

use spillway_route::{
    Group, Moment, OwnRegion, Plan, Policy, RegionCandidate, SpillTerms, plan, spill,
};
use spillway_types::Inquiry;

use regions::{others, own};
use world::{ReplicaTable, candidate, inquiry};

/// Replicas of the own region, without other regions.
const REPLICAS: [usize; 5] = [4, 64, 256, 1_000, 10_000];
/// Regions, the own one included, with [`REPLICAS_OF_REGIONS`] replicas in the own one. A cluster
/// agrees on 64 at most.
const REGIONS: [usize; 5] = [1, 10, 50, 64, 100];
const REPLICAS_OF_REGIONS: usize = 1_000;
const DECISIONS: usize = 50_000;

#[expect(clippy::print_stdout, reason = "it is what a benchmark is for")]
fn main() {
    // `cargo test --benches` only checks that the benchmark builds and starts.
    if !std::env::args().any(|argument| argument == "--bench") {
        return;
    }
    for replicas in REPLICAS {
        println!("{replicas} replicas: {}", measure(replicas, None));
    }
    for regions in REGIONS {
        let times = measure(REPLICAS_OF_REGIONS, Some(regions));
        println!("{REPLICAS_OF_REGIONS} replicas and weighing {regions} regions: {times}");
    }
}

fn quantiles(sorted_ns: &[u64]) -> String {
    let at = |share: f64| sorted_ns[(sorted_ns.len() as f64 * share) as usize] as f64 / 1e3;
    format!("p50 {:.1} us, p99 {:.1} us, p99.9 {:.1} us", at(0.5), at(0.99), at(0.999))
}

/// Input of every decision that is measured.
struct DecisionWorld {
    group: Group,
    loads: ReplicaTable,
    now: Instant,
    inquiry: Inquiry,
    /// The own region and the other regions; `None` if regions are not weighed.
    regions: Option<(OwnRegion, Vec<RegionCandidate>)>,
}

/// Returns the times and allocations of decisions, as one line of text.
#[expect(clippy::disallowed_methods, reason = "a benchmark looks at the clock")]
fn measure(replicas: usize, regions: Option<usize>) -> String {
    let now = Instant::now();
    let world = DecisionWorld {
        group: Group::new(Policy::PredictedLatency, (0..replicas).map(candidate).collect()),
        loads: ReplicaTable::new(replicas),
        now,
        inquiry: inquiry(now),
        regions: regions.map(|regions| (own(replicas), others(regions))),
    };
    let mut rng = fastrand::Rng::with_seed(1);
    let mut times_ns = Vec::with_capacity(DECISIONS);
    let counted = allocation_counter::measure(|| {
        for ticket in 0..DECISIONS as u64 {
            let start = Instant::now();
            decide(&world, ticket, &mut rng);
            times_ns.push(start.elapsed().as_nanos() as u64);
            world.loads.change(&mut rng);
        }
    });
    times_ns.sort_unstable();
    let allocations = counted.count_total as f64 / DECISIONS as f64;
    format!("{}, {allocations:.3} allocations", quantiles(&times_ns))
}

fn decide(world: &DecisionWorld, ticket: u64, rng: &mut fastrand::Rng) {
    let DecisionWorld { group, loads, now, inquiry, regions } = world;
    let moment = Moment { now: *now, loads, ticket, rng };
    let planned = black_box(plan(black_box(inquiry), group, &[], moment));
    let Some((own, others)) = regions else { return };
    let mut moment = Moment { now: *now, loads, ticket, rng };
    let prediction = match planned {
        Plan::Attempt(attempt) => attempt.prediction.unwrap_or_default(),
        Plan::Refuse(refusal) => unreachable!("{refusal}"),
    };
    let prefill_ms = prediction.wait_ms + prediction.prefill_ms + 400.0;
    let own = OwnRegion { prefill_ms, ..*own };
    let terms = SpillTerms::default();
    black_box(spill(inquiry, black_box(&own), black_box(others), &terms, &mut moment));
}
