//! A decision is made for each request, so it must not go to the allocator.

#[path = "../benches/decision/regions.rs"]
mod regions;
#[path = "../benches/decision/world.rs"]
mod world;

use std::hint::black_box;
use std::time::Instant;

use spillway_route::{
    Group, Moment, OwnRegion, Plan, Policy, SpillReason, SpillTerms, SpillVerdict, Waiting, plan,
    spill,
};

use regions::{others, own};
use world::{ReplicaTable, candidate, inquiry};

const REPLICAS: usize = 1_000;
const DECISIONS: u64 = 200;
/// Most regions that a cluster agrees on.
const REGIONS: usize = 64;

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
#[expect(clippy::disallowed_methods, reason = "a decision needs some moment to be made at")]
fn weighing_as_many_regions_as_a_cluster_has_allocates_nothing_whatever_the_verdict() {
    let (others, terms, now) = (others(REGIONS), SpillTerms::default(), Instant::now());
    let (inquiry, loads) = (inquiry(now), ReplicaTable::new(1));
    let free = own(REPLICAS);
    let full = OwnRegion { slots: Some(0), prefill_ms: 0.0, ..free };
    let waiting = |wait_ms| Waiting { wait_ms: Some(wait_ms), ..full.waiting };
    let cases = [
        (OwnRegion { prefill_ms: 1e4, ..free }, SpillReason::Cached),
        (OwnRegion { waiting: waiting(9_000), ..full }, SpillReason::Better),
        (OwnRegion { waiting: waiting(1), ..full }, SpillReason::NoneBetter),
        (OwnRegion { first_token_ms_max: Some(1.0), ..full }, SpillReason::Slo),
    ];
    for (own, reason) in cases {
        let mut rng = fastrand::Rng::with_seed(1);
        let counted = allocation_counter::measure(|| {
            let mut moment = Moment { now, loads: &loads, ticket: 0, rng: &mut rng };
            let plan = black_box(spill(&inquiry, &own, &others, &terms, &mut moment));
            assert_eq!((plan.reason, plan.regions.len()), (reason, REGIONS - 1));
            if let SpillVerdict::Forward(regions) = plan.verdict {
                assert!(regions.len() > REGIONS / 2, "{}", regions.len());
            }
        });
        assert_eq!(counted.count_total, 0, "{reason:?}");
    }
}

#[test]
fn what_is_allocated_is_counted() {
    let counted = allocation_counter::measure(|| drop(black_box(vec![black_box(1_u8); 100])));
    assert_eq!(counted.count_total, 1);
}
