//! Properties of single decisions: what they may depend on, and what they must not.

use std::time::Duration;

use proptest::prelude::*;
use spillway_route::{ShedReason, SpillReason};
use spillway_types::Deadline;

use super::Journey;
use super::test_sight::{START, Story, TestRegion, TestReplica, TestSight, ms};
use crate::{
    Claim, Decision, Event, Position, QueueSight, RequestWay, ResidencyDenial, Step, WaitTerms,
};

/// Regions at these distances in milliseconds, each with so many requests running of ten.
fn regions(distances: &[(u16, u8)]) -> Vec<TestRegion> {
    let names = ["b", "c", "d", "e"];
    let region = |((rtt_ms, running), name): (&(u16, u8), &str)| TestRegion {
        rtt_ms: f32::from(*rtt_ms),
        running: f32::from(*running),
        ..TestRegion::free(name)
    };
    distances.iter().zip(names).map(region).collect()
}

fn any_regions() -> impl Strategy<Value = Vec<(u16, u8)>> {
    prop::collection::vec((1..300_u16, 0..12_u8), 1..4)
}

/// A busy region beside others.
fn busy(distances: &[(u16, u8)], wait_ms: u32) -> TestSight {
    let mut sight = TestSight::new(2).full();
    sight.regions = regions(distances);
    sight.wait_ms = Some(wait_ms);
    sight.ahead = 2;
    sight
}

fn decide(sight: &TestSight, seed: u64) -> Decision {
    let mut rng = fastrand::Rng::with_seed(seed);
    Journey::new(*START, 3).consider(sight, *START, &mut rng)
}

fn forwarded(decision: &Decision) -> Option<usize> {
    match decision.way {
        RequestWay::Region { index, .. } => Some(index),
        RequestWay::Own
        | RequestWay::Wait { .. }
        | RequestWay::Shed { .. }
        | RequestWay::TooLate { .. } => None,
    }
}

proptest! {
    #[test]
    fn the_same_surroundings_and_seed_give_the_same_decision(
        distances in any_regions(), wait_ms in 0..20_000_u32, seed in any::<u64>(),
    ) {
        let sight = busy(&distances, wait_ms);
        let (first, second) = (decide(&sight, seed), decide(&sight, seed));
        prop_assert_eq!((first.way, first.planned), (second.way, second.planned));
    }

    #[test]
    fn a_region_with_a_free_place_and_no_queue_serves_itself(
        distances in any_regions(),
        replicas in prop::collection::vec((0..4_u32, 1..5_u32), 1..5),
        seed in any::<u64>(),
    ) {
        let mut sight = TestSight::new(replicas.len());
        sight.regions = regions(&distances);
        sight.is_roomy = false;
        for (replica, (in_flight, limit)) in sight.replicas.iter_mut().zip(&replicas) {
            *replica = TestReplica { in_flight: *in_flight, limit: *limit, ..*replica };
        }
        let has_room = replicas.iter().any(|(in_flight, limit)| in_flight < limit);
        let decision = decide(&sight, seed);
        prop_assert_eq!(decision.planned.is_ok(), has_room);
        prop_assert!(!has_room || decision.way == RequestWay::Own, "{:?}", decision.way);
    }

    #[test]
    fn more_in_its_caches_never_costs_a_region_the_request(
        distances in any_regions(), hot in 0..9_u32, more in 1..9_u32, seed in any::<u64>(),
    ) {
        let sight = |hot: u32, chosen: Option<usize>| {
            let mut sight = busy(&distances, 9_000);
            sight.rules.reads_caches = true;
            sight.regions[0].hot = sight.regions[0].hot.max(1);
            if let Some(chosen) = chosen {
                sight.regions[chosen].hot = hot;
            }
            sight
        };
        let before = forwarded(&decide(&sight(0, None), seed));
        let Some(chosen) = before else { return Ok(()) };
        let some = forwarded(&decide(&sight(hot.max(1), before), seed));
        let much = forwarded(&decide(&sight(hot.max(1) + more, before), seed));
        prop_assert!(some != Some(chosen) || much == Some(chosen), "{some:?} {much:?}");
    }

    #[test]
    fn what_is_explained_is_what_is_done(
        distances in any_regions(), replicas in 1..4_usize, is_full in any::<bool>(), seed in any::<u64>(),
    ) {
        let sight = || {
            let mut sight = TestSight::new(replicas);
            sight.regions = regions(&distances);
            sight.is_roomy = false;
            if is_full { sight.full() } else { sight }
        };
        let decision = decide(&sight(), seed);
        let mut story = Story::of(sight());
        story.rng = fastrand::Rng::with_seed(seed);
        match (story.next(), decision.way) {
            (Step::Ask { attempt, .. }, RequestWay::Own) => prop_assert_eq!(Ok(attempt), decision.planned),
            (Step::Forward { region, reason }, RequestWay::Region { index, reason: explained }) => {
                prop_assert_eq!(&region, &story.sight.regions[index].name);
                prop_assert_eq!(reason, Some(explained));
            }
            (Step::Wait(_), RequestWay::Wait { .. }) | (Step::End(_), RequestWay::Shed { .. }) => {}
            (step, way) => prop_assert!(false, "{step:?} though {way:?}"),
        }
    }

    #[test]
    fn a_region_that_may_not_serve_is_never_chosen_and_hides_no_other(
        distances in any_regions(), forbidden in 0..4_usize, seed in any::<u64>(),
    ) {
        let mut sight = busy(&distances, 9_000);
        let Some(chosen) = forwarded(&decide(&sight, seed)) else { return Ok(()) };
        let forbidden = forbidden % distances.len();
        sight.regions[forbidden].may_serve = false;
        let again = forwarded(&decide(&sight, seed));
        prop_assert_ne!(again, Some(forbidden));
        if chosen != forbidden {
            prop_assert!(again.is_some(), "the one that was chosen is still there");
        }
    }

    #[test]
    fn a_region_that_moves_further_away_is_not_chosen_for_that(
        distances in any_regions(), further in 0..4_usize, by in 1..2_000_u16, seed in any::<u64>(),
    ) {
        let further = further % distances.len();
        let near = forwarded(&decide(&busy(&distances, 9_000), seed));
        let mut far = distances;
        far[further].0 += by;
        let far = forwarded(&decide(&busy(&far, 9_000), seed));
        prop_assert!(far != Some(further) || near == Some(further), "{near:?} {far:?}");
    }

    #[test]
    fn a_wait_ends_with_the_first_of_deadline_longest_wait_and_patience(
        deadline_ms in 1..30_000_u64,
        longest_ms in 1..30_000_u64,
        patience_ms in prop::option::of(1..30_000_u64),
        slo_ms in prop::option::of(1..30_000_u64),
    ) {
        let mut sight = TestSight::new(1).full();
        sight.inquiry.deadline = Deadline::after(*START, ms(deadline_ms));
        sight.rules.wait_ms_max = longest_ms;
        sight.rules.slo = slo_ms.map(ms);
        sight.patience = patience_ms.map(ms);
        // The length of the wait is unknown.
        sight.replicas[0].is_guess = true;
        sight.replicas[0].in_flight = sight.replicas[0].limit + 1;
        let Step::Wait(terms) = Story::of(sight).next() else { return Ok(()) };
        let left_ms = patience_ms.map_or(longest_ms, |patience_ms| patience_ms.min(longest_ms));
        let WaitTerms { until, over, begin_by, pause, .. } = terms;
        prop_assert_eq!(until - *START, ms(left_ms.min(deadline_ms)));
        let is_late = deadline_ms <= left_ms;
        prop_assert_eq!(over, if is_late { ShedReason::Late } else { ShedReason::Waited });
        prop_assert_eq!(begin_by.map(|begin_by| begin_by - *START), slo_ms.map(ms));
        prop_assert!(!pause.is_zero() && pause <= ms(250) && pause <= until - *START);
    }
}

#[test]
fn the_rate_of_replicas_is_certain_only_when_their_limits_are() {
    let mut sight = TestSight::new(2);
    let journey = Journey::new(*START, 3);
    let rate = journey.expected_rate(&sight, 1_000.0);
    // Sixteen slots, each kept for 2 s alone and for 2.5 s beside others.
    assert!(rate.is_some_and(|rate| (rate - 6.4).abs() < 0.01), "{rate:?}");
    assert_eq!(journey.certain_rate(&sight, 1_000.0), rate);
    sight.replicas[1].is_guess = true;
    assert_eq!(journey.expected_rate(&sight, 1_000.0), rate);
    assert_eq!(journey.certain_rate(&sight, 1_000.0), None);
    let waiting = sight.waiting(Claim::Newcomer, &|tokens| journey.certain_rate(&sight, tokens));
    assert_eq!(waiting.wait_ms, None);
    assert_eq!(journey.expected_rate(&TestSight::new(0), 1_000.0), None);
}

#[test]
fn before_any_request_has_ended_a_rate_is_guessed_for_who_is_turned_away_alone() {
    let mut sight = TestSight::new(2);
    let journey = Journey::new(*START, 3);
    assert_eq!(journey.foreseen_rate(&sight, 1_000.0, 132), journey.expected_rate(&sight, 1_000.0));
    sight.is_fresh = true;
    assert_eq!(journey.expected_rate(&sight, 1_000.0), None);
    assert_eq!(journey.certain_rate(&sight, 1_000.0), None, "a guess refuses no request");
    sight.inquiry.prompt_bytes = 0;
    // Sixteen slots, each kept for 20 ms and 132 tokens of 15 ms, a quarter longer beside others.
    let rate = journey.foreseen_rate(&sight, 1_000.0, 132);
    assert!(rate.is_some_and(|rate| (rate - 6.4).abs() < 0.01), "{rate:?}");
    let shorter = journey.foreseen_rate(&sight, 1_000.0, 0);
    assert!(shorter > rate, "nothing is generated: {shorter:?}");
    assert_eq!(journey.foreseen_rate(&TestSight::new(0), 1_000.0, 132), None);
}

#[test]
fn a_request_at_its_turn_stands_before_all_that_wait() {
    let mut sight = busy(&[(20, 0)], 9_000);
    sight.regions.clear();
    let mut story = Story::of(sight);
    assert!(matches!(story.next(), Step::Wait(_)));
    story.tell(Event::Turn { due: *START });
    story.sight.regions = regions(&[(20, 0)]);
    story.sight.replicas[1].in_flight = 0;
    assert_eq!(story.journey.position(), Position::AtTurn);
    let Step::Ask { attempt, .. } = story.next() else { panic!("it has a slot here") };
    assert_eq!(attempt.slot.index(), 1);
}

#[test]
fn explanations_decide_by_the_number_that_they_are_given() {
    let mut sight = TestSight::new(3);
    sight.is_repeatable = true;
    let mut journey = Journey::new(*START, 3);
    journey.set_ticket(1);
    let mut rng = fastrand::Rng::with_seed(1);
    for _ in 0..3 {
        let decision = journey.consider(&sight, *START, &mut rng);
        assert_eq!(decision.planned.map(|attempt| attempt.slot.index()), Ok(1));
        assert!(decision.spill.is_none(), "no region had to be looked at");
    }
    assert_eq!(journey.attempts(), 0);
}

#[test]
fn a_regions_own_pause_is_told_to_those_that_are_turned_away() {
    let mut sight = TestSight::new(1);
    sight.rules.queue_count_max = 0;
    sight.busy_until = Some(*START + Duration::from_secs(3));
    let mut story = Story::of(sight);
    story.next();
    assert_eq!(story.journey.busy_until(), Some(*START + Duration::from_secs(3)));
}

#[test]
fn a_request_that_leaves_its_region_says_what_is_wrong_there() {
    let reason = |change: &dyn Fn(&mut TestSight)| {
        let mut sight = TestSight::new(1).with_regions(&["b"]);
        change(&mut sight);
        let decision = decide(&sight, 7);
        assert_eq!(forwarded(&decision), Some(0), "{decision:?}");
        decision.spill.map(|plan| plan.reason)
    };
    assert_eq!(reason(&|sight| sight.is_evacuated = true), Some(SpillReason::Evacuated));
    let forbid = |sight: &mut TestSight| sight.permission = Err(ResidencyDenial::NeverGiven);
    assert_eq!(reason(&forbid), Some(SpillReason::OutsideResidency));
    let none = |sight: &mut TestSight| {
        sight.replicas.clear();
        sight.best = 0;
        sight.regroup();
    };
    assert_eq!(reason(&none), Some(SpillReason::NoReplica));
}
