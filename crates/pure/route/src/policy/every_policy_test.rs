//! Properties that all policies share, and groups of policies with one promise.

use proptest::prelude::*;
use spillway_types::{RAMP_FULL, Reading, ReplicaSlot, Signals};

use crate::test_world::{World, assert_proportional};
use crate::{Attempt, Feedback, Policy, Reason};

/// Policies that fill replicas in exact proportion to weight, with requests that stay.
const FILLING_BY_WEIGHT: [Policy; 5] = [
    Policy::WeightedLeastConnections,
    Policy::LeastResponseTime,
    Policy::LeastLoaded,
    Policy::WeightedLeastPending,
    Policy::TokenBucket,
];

/// Policies where chance decides first if a candidate in slow start has its turn.
const OF_COHORTS: [Policy; 8] = [
    Policy::PowerOfTwo,
    Policy::LeastConnections,
    Policy::WeightedLeastConnections,
    Policy::LeastResponseTime,
    Policy::P99Weighted,
    Policy::LeastLoaded,
    Policy::WeightedLeastPending,
    Policy::TokenBucket,
];

/// Policies that use more than this process's requests in flight.
const SIGNALLED: [Policy; 5] = [
    Policy::LeastResponseTime,
    Policy::P99Weighted,
    Policy::LeastLoaded,
    Policy::WeightedLeastPending,
    Policy::TokenBucket,
];

/// Chooses among the policies that use this feedback. Blind ones have shares that are fixed by weight
/// and ramp, whatever the load.
fn any_with(feedback: Feedback) -> impl Strategy<Value = Policy> {
    let with = Policy::ALL.iter().copied().filter(|policy| policy.feedback() == feedback);
    prop::sample::select(with.collect::<Vec<_>>())
}

/// Returns the signals of a busy replica, all reported just now.
fn at_work() -> Signals {
    let fresh = |value| Reading { value, trust: 1.0 };
    Signals {
        latency_ms: fresh(100.0),
        p99_ms: fresh(120.0),
        queued: fresh(1.0),
        running: fresh(4.0),
        kv_use: fresh(0.3),
        gpu_use: fresh(0.5),
        gpu_memory_use: Reading::UNKNOWN,
        pending: fresh(5.0),
        in_flight_at_report: 2,
        bucket_tokens: 100_000.0,
        started_at: 0,
    }
}

/// Returns signals that are worse in everything.
fn overloaded() -> Signals {
    let fresh = |value| Reading { value, trust: 1.0 };
    Signals {
        latency_ms: fresh(1_000.0),
        p99_ms: fresh(1_200.0),
        queued: fresh(20.0),
        running: fresh(8.0),
        kv_use: fresh(1.0),
        gpu_use: fresh(1.0),
        gpu_memory_use: Reading::UNKNOWN,
        pending: fresh(28.0),
        in_flight_at_report: 2,
        bucket_tokens: 0.5,
        started_at: 0,
    }
}

/// Returns the signals as they look when there was no report for long.
fn stale(signals: Signals) -> Signals {
    let aged = |reading: Reading| Reading { trust: 0.0, ..reading };
    Signals {
        latency_ms: aged(signals.latency_ms),
        p99_ms: aged(signals.p99_ms),
        queued: aged(signals.queued),
        running: aged(signals.running),
        kv_use: aged(signals.kv_use),
        gpu_use: aged(signals.gpu_use),
        gpu_memory_use: aged(signals.gpu_memory_use),
        pending: aged(signals.pending),
        bucket_tokens: 10.0,
        ..signals
    }
}

fn world(policy: Policy, signals: [Signals; 4]) -> World {
    let mut world = World::idle(policy, &[1; 4]);
    world.loads.signals = signals.to_vec();
    world
}

#[test]
fn equal_replicas_share_evenly_whatever_is_known() {
    let old = [at_work(), overloaded(), Signals::UNKNOWN, overloaded()].map(stale);
    for signals in [[Signals::UNKNOWN; 4], [at_work(); 4], [overloaded(); 4], old] {
        for &policy in Policy::ALL {
            for concurrency in [0, 1, 9] {
                let served = world(policy, signals).serve(8_000, concurrency);
                assert_proportional(&served, &[1.0; 4]);
            }
        }
    }
}

#[test]
fn a_replica_that_reports_nothing_gets_about_its_share() {
    let mut signals = [at_work(); 4];
    signals[1] = Signals::UNKNOWN;
    for &policy in Policy::ALL {
        let served = world(policy, signals).serve(8_000, 9);
        assert!((1_000..3_000).contains(&served[1]), "{policy}: {served:?}");
    }
}

#[test]
fn a_replica_that_reports_nothing_never_gets_more_than_twice_its_share() {
    // The other reports lie far apart, so that a wrong mean would show.
    for (busy, idle) in [(overloaded(), at_work()), (at_work(), overloaded())] {
        let signals = [busy, Signals::UNKNOWN, idle, idle];
        for &policy in Policy::ALL {
            let served = world(policy, signals).serve(8_000, 9);
            assert!(served[1] <= 4_000, "{policy}: {served:?}");
        }
    }
}

#[test]
fn an_overloaded_replica_is_spared_until_its_signals_recover() {
    for policy in SIGNALLED {
        let mut world = world(policy, [overloaded(), at_work(), at_work(), at_work()]);
        let served = world.serve(8_000, 9);
        assert!(served[0] < 900, "{policy}: {served:?}");
        let started = world.loads.started.clone();
        for (signals, started_at) in world.loads.signals.iter_mut().zip(started) {
            *signals = Signals { started_at, ..at_work() };
        }
        assert_proportional(&world.serve(8_000, 9), &[1.0; 4]);
    }
}

#[test]
fn requests_that_stay_fill_replicas_in_proportion_to_weight() {
    for policy in FILLING_BY_WEIGHT {
        let mut world = World::idle(policy, &[3, 1, 2]);
        assert_eq!(world.serve(600, 600), [300, 100, 200], "{policy}");
    }
    for policy in [Policy::PowerOfTwo, Policy::P99Weighted] {
        let served = World::idle(policy, &[3, 1, 2]).serve(6_000, 6_000);
        for (served, expected) in served.into_iter().zip([3_000, 1_000, 2_000_u64]) {
            assert!(served.abs_diff(expected) < 60, "{policy}: {served} of {expected}");
        }
    }
}

/// Returns the requests that one of `count` replicas gets in slow start while the others are warm,
/// as a part of its share by ramp.
fn share_while_warming_up(policy: Policy, ramp: u16, count: u16, concurrency: usize) -> f64 {
    let mut ramps = vec![(1, RAMP_FULL); usize::from(count)];
    ramps[1].1 = ramp;
    let mut world = World::ramping(policy, &ramps);
    world.loads.signals = vec![at_work(); usize::from(count)];
    let served = world.serve(20_000, concurrency)[1] as f64 / 20_000.0;
    let ramp = f64::from(ramp) / f64::from(RAMP_FULL);
    served * (f64::from(count - 1) + ramp) / ramp
}

#[test]
fn one_that_warms_up_gets_what_counts_of_its_share_whatever_the_load() {
    for &policy in Policy::ALL {
        for (ramp, count) in [(20, 2), (100, 4), (500, 4), (20, 10), (100, 10)] {
            for concurrency in [0, 2, 8, 20, 100] {
                let share = share_while_warming_up(policy, ramp, count, concurrency);
                // A hash keeps its keys until the replica has its bound, which is a whole number.
                // Other policies pass over a replica with one request if its share is less than
                // one.
                let most = if policy == Policy::BoundedConsistentHash { 2.0 } else { 1.25 };
                let case = format!("{policy}, ramp {ramp} of {count}, {concurrency} in flight");
                assert!((0.5..most).contains(&share), "{case}: {share}");
            }
        }
    }
}

#[test]
fn several_that_warm_up_get_what_counts_of_each() {
    for &policy in Policy::ALL {
        let ramps = [100, RAMP_FULL, 400, 600, RAMP_FULL];
        let mut world = World::ramping(policy, &ramps.map(|ramp| (2, ramp)));
        world.loads.signals = vec![at_work(); 5];
        let served = world.serve(20_000, 40);
        for (index, ramp) in ramps.into_iter().enumerate() {
            let share = served[index] as f64 / 20_000.0 / (f64::from(ramp) / 3_100.0);
            assert!((0.5..1.5).contains(&share), "{policy}: {share} of its share at ramp {ramp}");
        }
    }
}

#[test]
fn one_that_warms_up_and_answers_slowly_gets_no_more_while_it_has_its_share() {
    for policy in OF_COHORTS {
        let mut world = World::ramping(policy, &[(1, RAMP_FULL), (1, 100), (1, RAMP_FULL)]);
        world.loads.signals = vec![at_work(); 3];
        world.loads.in_flight = vec![10, 2, 10];
        // A tenth of 2.1 parts of 23 requests is 1.1; a fourth more is still less than 2.
        assert_eq!(world.tally(500)[1], 0, "{policy}");
        world.loads.in_flight[1] = 1;
        let attempts: Vec<Attempt> = (0..500).map(|ticket| world.attempt(ticket)).collect();
        for attempt in &attempts {
            let is_cold = attempt.slot == ReplicaSlot(1);
            assert_eq!(is_cold, attempt.reason == Reason::WarmingUp, "{policy}: {attempt:?}");
        }
        assert!(attempts.iter().any(|one| one.reason == Reason::WarmingUp), "{policy}");
    }
}

#[test]
fn one_that_warms_up_never_gets_more_for_it() {
    for &policy in Policy::ALL {
        let mut world = World::ramping(policy, &[(1, RAMP_FULL), (1, 100), (1, RAMP_FULL)]);
        world.loads.signals = vec![at_work(); 3];
        let served = world.serve(9_000, 20);
        assert!(served[1] < 1_000 && served[1] > 0, "{policy}: {served:?}");
    }
}

#[test]
fn a_whole_group_that_warms_up_is_as_one_that_does_not() {
    for &policy in Policy::ALL {
        let serve = |ramp_permille| {
            let mut world =
                World::ramping(policy, &[4, 1, 2].map(|weight| (weight, ramp_permille)));
            world.loads.signals = vec![at_work(); 3];
            (0..200)
                .map(|ticket| {
                    world.affinity = Some(world.rng.u64(..));
                    let slot = world.attempt(ticket).slot;
                    world.loads.in_flight[slot.index()] += 1;
                    slot
                })
                .collect::<Vec<_>>()
        };
        assert_eq!(serve(RAMP_FULL), serve(250), "{policy}");
    }
}

#[test]
fn one_that_has_hardly_begun_to_warm_up_serves_when_there_is_no_other() {
    for &policy in Policy::ALL {
        let mut alone = World::ramping(policy, &[(1, 1)]);
        let only = alone.attempt(0);
        assert_eq!((only.slot, only.reason), (ReplicaSlot(0), Reason::Only), "{policy}");
        let mut last = World::ramping(policy, &[(1, 1), (9, RAMP_FULL)]);
        last.loads.in_flight[1] = u32::MAX;
        assert_eq!(last.attempt(0).slot, ReplicaSlot(0), "{policy}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn fixed_shares_are_in_proportion_to_weight_and_ramp(
        policy in any_with(Feedback::Blind),
        weights in prop::collection::vec((1..6_u32, prop_oneof![Just(RAMP_FULL), 50..1_000_u16]), 2..6),
        seed: u64,
    ) {
        let mut world = World::ramping(policy, &weights);
        world.rng.seed(seed);
        let shares: Vec<f64> = weights
            .iter()
            .map(|&(weight, ramp)| {
                let weight = if policy == Policy::RoundRobin { 1 } else { weight };
                f64::from(weight) * f64::from(ramp)
            })
            .collect();
        assert_proportional(&world.serve(6_000, 3), &shares);
    }
}
