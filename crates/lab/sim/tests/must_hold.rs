//! Limits that the routing has to keep, measured in simulated time.

use std::time::Instant;

use spillway_route::Policy;
use spillway_sim::{Figures, Hearing, Scale, Scenario, Setup, WorkloadKind};

/// Part of the full load: replicas are well used and none is overloaded.
const LOAD: f64 = 0.7;

#[expect(clippy::disallowed_methods, reason = "some moment has to stand for time 0")]
fn scenario(kind: WorkloadKind, loads: [f64; 3], nodes: usize, seed: u64) -> Scenario {
    let scale = Scale { nodes, seed, warm_up_s: 20.0, seconds: 40.0, ..Scale::default() };
    Scenario::three_regions(kind, loads, &scale, Instant::now())
}

fn predicted() -> Setup {
    Setup::policy(Policy::PredictedLatency)
}

fn omniscient() -> Setup {
    Setup::omniscient(Policy::PredictedLatency)
}

fn run(setup: &Setup, kind: WorkloadKind, nodes: usize) -> Figures {
    setup.run(&scenario(kind, [LOAD; 3], nodes, 1))
}

#[test]
fn caches_are_followed_nearly_as_well_as_by_a_router_that_knows_all_with_any_number_of_nodes() {
    let best = run(&omniscient(), WorkloadKind::SystemPrompts, 1).cached_share;
    let all: Vec<Figures> = [1, 2, 4, 8]
        .into_iter()
        .map(|nodes| run(&predicted(), WorkloadKind::SystemPrompts, nodes))
        .collect();
    for figures in &all {
        assert!(figures.cached_share >= 0.95 * best, "{} of {best}", figures.cached_share);
        assert!(figures.work_skew() <= 1.3, "{:?}", figures.regions);
        // Work is what counts: of requests whose prompts are cached a replica takes more.
        assert!(figures.request_skew() <= 1.4, "{:?}", figures.regions);
        assert_eq!(figures.failed, 0);
    }
    let [one, eight] = [&all[0], &all[3]];
    assert!(eight.cached_share >= 0.98 * one.cached_share, "{}", eight.cached_share);
    assert!(eight.work_skew() <= 1.02 * one.work_skew().max(1.15), "{}", eight.work_skew());
}

#[test]
fn without_hearing_of_each_other_nodes_lose_what_the_last_test_holds() {
    let deaf = Setup { hearing: Hearing::Unshared, ..predicted() };
    let share = |setup: &Setup, nodes| run(setup, WorkloadKind::SystemPrompts, nodes).cached_share;
    assert!(share(&deaf, 8) < 0.95 * share(&predicted(), 8));
}

#[test]
fn a_hot_prefix_melts_no_replica_and_is_answered_sooner_than_by_least_load() {
    let of = |setup: &Setup, seed| {
        setup.run(&scenario(WorkloadKind::Hot, [LOAD; 3], 2, seed)).first_token_ms
    };
    let figures = run(&predicted(), WorkloadKind::Hot, 2);
    assert!(figures.work_skew() <= 1.5, "{:?}", figures.regions);
    assert!(figures.request_skew() <= 1.5, "{:?}", figures.regions);
    assert_eq!(figures.failed, 0);
    for policy in [Policy::LeastConnections, Policy::LeastLoaded] {
        // Three seeds together: one minute has too few of the long prompts that decide the 90th
        // percentile.
        let sums = |setup: &Setup| {
            let all = [1, 2, 3].map(|seed| of(setup, seed));
            (all.iter().map(|one| one.p50).sum::<f64>(), all.iter().map(|one| one.p90).sum::<f64>())
        };
        let (own, other) = (sums(&predicted()), sums(&Setup::policy(policy)));
        assert!(own.0 < other.0 && own.1 < other.1, "{policy}: {own:?} and {other:?}");
    }
}

#[test]
fn consistent_hashing_shows_that_the_hot_prefix_can_melt_a_replica() {
    let mut hashing = Setup::policy(Policy::ConsistentHash);
    // A limit of requests in flight would spare the replica the worst.
    hashing.router.limits = false;
    let figures = run(&hashing, WorkloadKind::Hot, 2);
    assert!(figures.request_skew() > 2.0, "{:?}", figures.regions);
}

/// Asserts that following caches beats spreading requests.
fn check_follows(kind: WorkloadKind) {
    let own = run(&predicted(), kind, 2);
    for policy in [Policy::LeastLoaded, Policy::RoundRobin] {
        let other = run(&Setup::policy(policy), kind, 2);
        let (first, second) = (own.first_token_ms, other.first_token_ms);
        assert!(own.cached_share > 1.1 * other.cached_share, "{kind:?} {policy}");
        assert!(first.p50 < second.p50 && first.p90 < second.p90, "{kind:?} {policy}");
        assert!(own.goodput_per_s(2_000.0) >= other.goodput_per_s(2_000.0), "{kind:?} {policy}");
    }
}

#[test]
fn following_caches_beats_spreading_requests_with_system_prompts() {
    check_follows(WorkloadKind::SystemPrompts);
}

#[test]
fn following_caches_beats_spreading_requests_with_chats() {
    check_follows(WorkloadKind::Chats);
}

#[test]
fn following_caches_beats_spreading_requests_with_documents() {
    check_follows(WorkloadKind::Documents);
}
