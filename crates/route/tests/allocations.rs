//! A decision is made for each request, so it must not go to the allocator.

#[path = "../benches/decision/world.rs"]
mod world;

use std::hint::black_box;
use std::time::Instant;

use spillway_route::{Group, Moment, Plan, Policy, plan};
use world::{ReplicaTable, candidate, inquiry};

const REPLICAS: usize = 1_000;
const DECISIONS: u64 = 200;

/// Returns the number of allocations of all decisions together.
#[expect(clippy::disallowed_methods, reason = "a decision needs some moment to be made at")]
fn allocations(policy: Policy) -> u64 {
    let group = Group::new(policy, (0..REPLICAS).map(candidate).collect());
    let (loads, now) = (ReplicaTable::new(REPLICAS), Instant::now());
    let inquiry = inquiry(now);
    let mut rng = fastrand::Rng::with_seed(1);
    let counted = allocation_counter::measure(|| {
        for ticket in 0..DECISIONS {
            let moment = Moment { now, loads: &loads, ticket, rng: &mut rng };
            let planned = black_box(plan(black_box(&inquiry), &group, &[], moment));
            assert!(matches!(planned, Plan::Attempt(_)), "{policy}: {planned:?}");
            loads.change(&mut rng);
        }
    });
    counted.count_total
}

#[test]
fn a_plan_among_a_thousand_replicas_allocates_nothing_whatever_the_policy() {
    for &policy in Policy::ALL {
        assert_eq!(allocations(policy), 0, "{policy}");
    }
}

#[test]
fn what_is_allocated_is_counted() {
    let counted = allocation_counter::measure(|| drop(black_box(vec![black_box(1_u8); 100])));
    assert_eq!(counted.count_total, 1);
}
