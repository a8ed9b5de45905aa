//! Cost of one decision, by policy, size of the group and how many of it are usable.
//!
//! Run with `cargo bench -p spillway-route`.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use divan::Bencher;
use spillway_route::{Candidate, Group, Loads, Moment, Policy, plan};
use spillway_types::{BlockHashes, Deadline, Inquiry, ReplicaSlot};

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

/// The node's way of counting: one atomic per replica.
struct Counters(Vec<AtomicU32>);

impl Loads for Counters {
    fn in_flight(&self, slot: ReplicaSlot) -> u32 {
        self.0[slot.index()].load(Ordering::Relaxed)
    }
}

#[expect(clippy::disallowed_methods, reason = "a benchmark needs some starting moment")]
fn measure(bencher: Bencher<'_, '_>, policy: Policy, count: usize, busy: impl Fn(usize) -> bool) {
    let group = Group::new(policy, candidates(count));
    let load = |index| if busy(index) { 100 } else { index as u32 % 7 };
    let loads = Counters((0..count).map(|index| AtomicU32::new(load(index))).collect());
    let now = Instant::now();
    let mut inquiry = Inquiry {
        model: None,
        prefix: BlockHashes::default(),
        prompt_bytes: 0,
        affinity: None,
        session: None,
        client: IpAddr::V4(Ipv4Addr::LOCALHOST),
        deadline: Deadline::after(now, Duration::from_secs(60)),
        hop: 0,
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
