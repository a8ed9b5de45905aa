//! How long a whole decision takes, at the median and at worst: one request with a prompt of 4,096
//! tokens, among 1,000 replicas and 50 regions.
//!
//! Run with `cargo bench -p spillway-route --bench decision`. Looking up the prompt is not in it:
//! `spillway-prefix` measures that.

use std::hint::black_box;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use spillway_route::{
    Access, Candidate, Group, Loads, Moment, OwnRegion, Plan, Policy, RegionCandidate,
    RegionReport, Snapshot, SpillTerms, Waiting, plan, spill,
};
use spillway_types::{
    Allowed, BlockHashes, Deadline, Inquiry, ModelLoad, ModelName, RAMP_FULL, Reading, ReplicaSlot,
    ShedState, Signals, Speed,
};

const REPLICAS: usize = 1_000;
const REGIONS: usize = 50;
const DECISIONS: usize = 50_000;
/// Bytes of a prompt of 4,096 tokens.
const PROMPT_BYTES: u32 = 16_384;

#[expect(clippy::print_stdout, reason = "it is what a benchmark is for")]
fn main() {
    for policy in [Policy::PredictedLatency, Policy::PrefixAware, Policy::Prequal] {
        let (planned, whole) = (measure(policy, false), measure(policy, true));
        println!("{policy}: plan {}", quantiles(&planned));
        println!("{policy}: plan and weighing {REGIONS} regions {}", quantiles(&whole));
    }
}

fn quantiles(sorted_ns: &[u64]) -> String {
    let at = |share: f64| sorted_ns[(sorted_ns.len() as f64 * share) as usize] as f64 / 1e3;
    format!("p50 {:.1} us, p99 {:.1} us, p99.9 {:.1} us", at(0.5), at(0.99), at(0.999))
}

/// Nanoseconds of each decision, sorted.
#[expect(clippy::disallowed_methods, reason = "a benchmark looks at the clock")]
fn measure(policy: Policy, has_regions: bool) -> Vec<u64> {
    let group = Group::new(policy, (0..REPLICAS).map(candidate).collect());
    let loads = Table::new();
    let now = Instant::now();
    let inquiry = inquiry(now);
    let (own, others, terms) = (own(), others(), SpillTerms::default());
    let mut rng = fastrand::Rng::with_seed(1);
    let mut times = Vec::with_capacity(DECISIONS);
    for ticket in 0..DECISIONS as u64 {
        let start = Instant::now();
        let moment = Moment { now, loads: &loads, ticket, rng: &mut rng };
        let planned = black_box(plan(black_box(&inquiry), &group, &[], moment));
        if has_regions {
            let mut moment = Moment { now, loads: &loads, ticket, rng: &mut rng };
            let prediction = match planned {
                Plan::Attempt(attempt) => attempt.prediction.unwrap_or_default(),
                Plan::Refuse(refusal) => unreachable!("{refusal}"),
            };
            let prefill_ms = prediction.wait_ms + prediction.prefill_ms + 400.0;
            let own = OwnRegion { prefill_ms, ..own };
            black_box(spill(&inquiry, black_box(&own), black_box(&others), &terms, &mut moment));
        }
        times.push(start.elapsed().as_nanos() as u64);
        loads.change(&mut rng);
    }
    times.sort_unstable();
    times
}

/// Atomics and tables by slot, as in a node.
struct Table {
    in_flight: Vec<AtomicU32>,
    cached_blocks: Vec<u32>,
    cached_blocks_max: u32,
    signals: Vec<Signals>,
    speeds: Vec<Speed>,
}

impl Table {
    fn new() -> Self {
        let fresh = |value| Reading { value, trust: 0.9 };
        let signals = |index: usize| Signals {
            latency_ms: fresh(50.0 + (index % 13) as f32),
            queued: fresh((index % 3 / 2) as f32),
            running: fresh((4 + index % 9) as f32),
            kv_use: fresh((index % 11) as f32 / 11.0),
            in_flight_at_report: (index % 4) as u32,
            ..Signals::UNKNOWN
        };
        let speed = |index: usize| Speed {
            prefill_ms: 0.1 + (index % 7) as f32 / 100.0,
            kv_tokens: 200_000.0,
            ends_per_s: 5.0,
            trust: 0.9,
            ..Speed::UNKNOWN
        };
        Self {
            in_flight: (0..REPLICAS).map(|index| AtomicU32::new(index as u32 % 7)).collect(),
            cached_blocks: (0..REPLICAS).map(|index| (index % 37 / 30 * 9) as u32).collect(),
            cached_blocks_max: 9,
            signals: (0..REPLICAS).map(signals).collect(),
            speeds: (0..REPLICAS).map(speed).collect(),
        }
    }

    /// Some requests come and end between two decisions.
    fn change(&self, rng: &mut fastrand::Rng) {
        for _ in 0..10 {
            self.in_flight[rng.usize(..REPLICAS)].store(rng.u32(..7), Ordering::Relaxed);
        }
    }
}

impl Loads for Table {
    fn in_flight(&self, slot: ReplicaSlot) -> u32 {
        self.in_flight[slot.index()].load(Ordering::Relaxed)
    }

    fn signals(&self, slot: ReplicaSlot) -> Signals {
        self.signals[slot.index()]
    }

    fn cached_blocks(&self, slot: ReplicaSlot) -> u32 {
        self.cached_blocks[slot.index()]
    }

    fn cached_blocks_max(&self) -> u32 {
        self.cached_blocks_max
    }

    fn speed(&self, slot: ReplicaSlot) -> Speed {
        self.speeds[slot.index()]
    }

    fn snapshot(&self, slot: ReplicaSlot) -> Snapshot {
        Snapshot {
            in_flight: self.in_flight(slot),
            limit: u32::MAX,
            cached_blocks: self.cached_blocks(slot),
            pending_tokens: 0,
            signals: self.signals(slot),
            speed: self.speed(slot),
        }
    }
}

fn candidate(index: usize) -> Candidate {
    Candidate {
        slot: ReplicaSlot(index as u32),
        identity: (index as u64).wrapping_mul(0xD6E8_FEB8_6659_FD93),
        weight: 1,
        ramp_permille: RAMP_FULL,
        in_flight_max: 100,
    }
}

fn inquiry(now: Instant) -> Inquiry {
    Inquiry {
        model: Some(ModelName::from("m")),
        prefix: BlockHashes::new((0..u64::from(PROMPT_BYTES / 256)).collect()),
        prompt_bytes: PROMPT_BYTES,
        output_tokens_max: Some(300),
        affinity: None,
        session: None,
        client: IpAddr::V4(Ipv4Addr::LOCALHOST),
        deadline: Deadline::after(now, Duration::from_secs(600)),
        hop: 0,
        tenant: None,
        priority: 0,
        regions: Allowed::All,
        is_isolated: false,
    }
}

/// A region with room, which others may be sooner than.
fn own() -> OwnRegion {
    OwnRegion {
        replicas: REPLICAS as u32,
        report: report(20.0),
        places: Some(40),
        waiting: Waiting { ahead: 0, all: 0, has_room: true },
        guests: 0,
        nodes: 4,
        prefill_ms: 0.0,
        price_ms: 0.0,
        weight_permille: RAMP_FULL,
    }
}

fn others() -> Vec<RegionCandidate> {
    let other = |index: usize| RegionCandidate {
        access: Access::Ready,
        report: report(10.0 + (index % 13) as f32),
        rtt_ms: 60.0 + (index * 37 % 101) as f32,
        prefill_ms: (index % 5 * 60) as f32,
        price_ms: 0.0,
        weight_permille: RAMP_FULL,
        ramp_permille: RAMP_FULL,
        is_current: false,
    };
    (1..REGIONS).map(other).collect()
}

fn report(running: f32) -> RegionReport {
    let load = ModelLoad {
        queued: 0.0,
        running,
        capacity: Some(40.0),
        rate_per_s: Some(running),
        kv_use: Some(0.5),
        wait_ms: None,
        shed: ShedState::Open,
    };
    RegionReport { load, age_ms: 120.0, sent: 2, ended: 1 }
}
