//! Cost of one decision, by policy, group size and share of usable replicas.
//!
//! Run with `cargo bench -p spillway-route`.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use divan::Bencher;
use spillway_route::{Candidate, Group, Loads, Moment, Policy, plan};
use spillway_types::{BlockHashes, Deadline, Inquiry, Reading, ReplicaSlot, Residency, Signals};

const SIZES: [usize; 3] = [4, 64, 1_000];

/// Shows allocations beside the times: a decision makes none.
#[global_allocator]
static ALLOCATOR: divan::AllocProfiler = divan::AllocProfiler::system();

fn main() {
    divan::main();
}

#[divan::bench(args = Policy::ALL, consts = SIZES)]
fn all_usable<const N: usize>(bencher: Bencher<'_, '_>, policy: Policy) {
    measure(bencher, policy, N, |_| false);
}

#[divan::bench(args = Policy::ALL, consts = SIZES)]
fn half_busy<const N: usize>(bencher: Bencher<'_, '_>, policy: Policy) {
    measure(bencher, policy, N, |index| index % 2 == 0);
}

#[divan::bench(args = Policy::ALL, consts = SIZES)]
fn all_but_one_busy<const N: usize>(bencher: Bencher<'_, '_>, policy: Policy) {
    measure(bencher, policy, N, |index| index != N / 2);
}

#[divan::bench(args = Policy::ALL, consts = SIZES)]
fn prepare<const N: usize>(bencher: Bencher<'_, '_>, policy: Policy) {
    bencher.with_inputs(|| candidates(N)).bench_values(|candidates| Group::new(policy, candidates));
}

#[divan::bench(args = Policy::ALL, consts = SIZES)]
fn session<const N: usize>(bencher: Bencher<'_, '_>, policy: Policy) {
    let session = Some(candidates(N)[N / 2].identity);
    measure_session(bencher, policy, N, session, |_| false);
}

/// Loads as a node keeps them: atomics by replica, and a table of signals.
struct Counters {
    in_flight: Vec<AtomicU32>,
    started: Vec<AtomicU64>,
    signals: Vec<Signals>,
}

impl Counters {
    fn new(count: usize, in_flight: impl Fn(usize) -> u32) -> Self {
        let fresh = |value| Reading { value, trust: 0.9 };
        let signals = |index| Signals {
            latency_ms: fresh(50.0 + (index % 13) as f32),
            p99_ms: fresh(90.0 + (index % 17) as f32),
            queued: fresh((index % 3) as f32),
            running: fresh((index % 5) as f32),
            kv_use: fresh((index % 11) as f32 / 11.0),
            gpu_use: fresh((index % 19) as f32 / 19.0),
            gpu_memory_use: fresh((index % 23) as f32 / 23.0),
            pending: fresh((index % 7) as f32),
            in_flight_at_report: (index % 4) as u32,
            bucket_tokens: 10.0 + (index % 6) as f32,
            started_at: 1_000,
        };
        Self {
            in_flight: (0..count).map(|index| AtomicU32::new(in_flight(index))).collect(),
            started: (0..count).map(|index| AtomicU64::new(1_000 + index as u64 % 9)).collect(),
            signals: (0..count).map(signals).collect(),
        }
    }
}

impl Loads for Counters {
    fn in_flight(&self, slot: ReplicaSlot) -> u32 {
        self.in_flight[slot.index()].load(Ordering::Relaxed)
    }

    fn started(&self, slot: ReplicaSlot) -> u64 {
        self.started[slot.index()].load(Ordering::Relaxed)
    }

    fn signals(&self, slot: ReplicaSlot) -> Signals {
        self.signals[slot.index()]
    }
}

fn measure(bencher: Bencher<'_, '_>, policy: Policy, count: usize, busy: impl Fn(usize) -> bool) {
    measure_session(bencher, policy, count, None, busy);
}

#[expect(clippy::disallowed_methods, reason = "a benchmark needs some starting moment")]
fn measure_session(
    bencher: Bencher<'_, '_>,
    policy: Policy,
    count: usize,
    session: Option<u64>,
    busy: impl Fn(usize) -> bool,
) {
    let group = Group::new(policy, candidates(count));
    let load = |index| if busy(index) { 100 } else { index as u32 % 7 };
    let loads = Counters::new(count, load);
    let now = Instant::now();
    let mut inquiry = Inquiry {
        model: None,
        prefix: BlockHashes::default(),
        prompt_bytes: 0,
        output_tokens_max: None,
        output_tokens: None,
        whole_tokens: None,
        answers: 1,
        affinity: None,
        session,
        client: IpAddr::V4(Ipv4Addr::LOCALHOST),
        deadline: Deadline::after(now, Duration::from_secs(60)),
        hop: 0,
        tenant: None,
        priority: 0,
        residency: Residency::default(),
        is_isolated: false,
    };
    let mut rng = fastrand::Rng::with_seed(1);
    let mut ticket = 0_u64;
    bencher.bench_local(|| {
        ticket += 1;
        inquiry.affinity = Some(ticket.wrapping_mul(0x9E37_79B9_7F4A_7C15));
        plan(&inquiry, &group, &[], Moment { now, loads: &loads, ticket, rng: &mut rng })
    });
}

fn candidates(count: usize) -> Vec<Candidate> {
    let candidate = |slot| Candidate {
        slot: ReplicaSlot(slot as u32),
        identity: (slot as u64).wrapping_mul(0xD6E8_FEB8_6659_FD93),
        weight: 1 + slot as u32 % 5,
        ramp_permille: spillway_types::RAMP_FULL,
        in_flight_max: 100,
    };
    (0..count).map(candidate).collect()
}
