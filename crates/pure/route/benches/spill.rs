//! Cost of one decision between regions, by their number.
//!
//! Run with `cargo bench -p spillway-route --bench spill`.

use std::net::{IpAddr, Ipv4Addr};
use std::time::{Duration, Instant};

use divan::Bencher;
use spillway_route::{
    Access, Loads, Moment, OwnRegion, RegionCandidate, RegionReport, SpillTerms, Waiting,
    admit_guest, spill,
};
use spillway_types::{
    BlockHashes, Deadline, Inquiry, ModelLoad, RAMP_FULL, ReplicaSlot, Residency, ShedState,
};

/// Regions of the cluster, the own one included.
const REGIONS: [usize; 3] = [3, 10, 50];

/// Shows allocations beside the times: up to nine regions cost none.
#[global_allocator]
static ALLOCATOR: divan::AllocProfiler = divan::AllocProfiler::system();

fn main() {
    divan::main();
}

#[divan::bench(args = REGIONS)]
fn own_room(bencher: Bencher<'_, '_>, regions: usize) {
    let waiting = Waiting { ahead: 0, wait_ms: None, all: 0, has_room: true };
    let own = OwnRegion { slots: Some(3), waiting, ..own() };
    measure(bencher, &own, &others(regions, ShedState::Open));
}

#[divan::bench(args = REGIONS)]
fn forward(bencher: Bencher<'_, '_>, regions: usize) {
    measure(bencher, &own(), &others(regions, ShedState::Open));
}

#[divan::bench(args = REGIONS)]
fn wait(bencher: Bencher<'_, '_>, regions: usize) {
    measure(bencher, &own(), &others(regions, ShedState::Reserved));
}

#[divan::bench(args = REGIONS)]
fn shed(bencher: Bencher<'_, '_>, regions: usize) {
    let waiting = Waiting { ahead: 90, wait_ms: None, all: 90, has_room: false };
    measure(bencher, &OwnRegion { waiting, ..own() }, &others(regions, ShedState::Reserved));
}

#[divan::bench]
fn guest(bencher: Bencher<'_, '_>) {
    let (own, terms) = (own(), SpillTerms::default());
    bencher.bench_local(|| admit_guest(divan::black_box(&own), divan::black_box(&terms)));
}

#[expect(clippy::disallowed_methods, reason = "a benchmark needs some starting moment")]
fn measure(bencher: Bencher<'_, '_>, own: &OwnRegion, others: &[RegionCandidate]) {
    let now = Instant::now();
    let inquiry = Inquiry {
        model: None,
        prefix: BlockHashes::default(),
        prompt_bytes: 0,
        output_tokens_max: None,
        output_tokens: None,
        whole_tokens: None,
        answers: 1,
        affinity: None,
        session: None,
        client: IpAddr::V4(Ipv4Addr::LOCALHOST),
        deadline: Deadline::after(now, Duration::from_secs(60)),
        hop: 0,
        tenant: None,
        priority: 0,
        residency: Residency::default(),
        is_isolated: false,
    };
    let terms = SpillTerms::default();
    let mut rng = fastrand::Rng::with_seed(1);
    bencher.bench_local(|| {
        let mut moment = Moment { now, loads: &NoLoads, ticket: 0, rng: &mut rng };
        spill(&inquiry, divan::black_box(own), divan::black_box(others), &terms, &mut moment)
    });
}

struct NoLoads;

impl Loads for NoLoads {
    fn in_flight(&self, _slot: ReplicaSlot) -> u32 {
        0
    }
}

fn own() -> OwnRegion {
    OwnRegion {
        replicas: 8,
        report: report(40.0, ShedState::Shedding),
        slots: Some(0),
        waiting: Waiting { ahead: 20, wait_ms: None, all: 20, has_room: true },
        guests: 0,
        nodes: 4,
        prefill_ms: 0.0,
        stall_ms: 0.0,
        price_ms: 0.0,
        weight_permille: RAMP_FULL,
        first_token_ms_max: None,
        rest_ms: 0.0,
        late_ms: None,
    }
}

fn others(regions: usize, shed: ShedState) -> Vec<RegionCandidate> {
    let other = |index: usize| RegionCandidate {
        access: Access::Ready,
        report: report(10.0 + (index % 13) as f32, shed),
        rtt_ms: 60.0 + (index * 37 % 101) as f32,
        prefill_ms: 0.0,
        stall_ms: 20.0,
        pending_ms: 10.0,
        rest_ms: 0.0,
        is_shared: false,
        price_ms: (index % 3) as f32,
        weight_permille: RAMP_FULL,
        ramp_permille: RAMP_FULL,
        is_home: false,
        home_ms: 0.0,
    };
    (1..regions).map(other).collect()
}

fn report(running: f32, shed: ShedState) -> RegionReport {
    let load = ModelLoad {
        queued: 0.0,
        running,
        capacity: Some(40.0),
        rate_per_s: Some(running),
        kv_use: Some(0.5),
        wait_ms: None,
        replicas: 8,
        pending_tokens: Some(1_000.0),
        shed,
    };
    RegionReport { load, age_ms: 120.0, sent: 2, ended: 1 }
}
