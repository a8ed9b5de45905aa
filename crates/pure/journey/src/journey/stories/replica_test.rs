//! Choice of a replica.

use spillway_route::Reason;
use spillway_types::{Deadline, ReplicaSlot};

use super::super::test_sight::{START, Story, TestSight, check, check_each, ms, short};
use super::region_test::abroad;
use super::{OK, UNSENT, tell};
use crate::{Event, Unasked};

#[test]
fn a_replica_that_replies_ends_the_journey() {
    tell(TestSight::new(2), &[("ask 0", Some(OK)), ("end Reply", None)]);
}

#[test]
fn without_replicas_and_regions_a_request_is_refused() {
    let story = tell(TestSight::new(0), &[("refused no_replica", None)]);
    assert_eq!(story.journey.attempts(), 0);
}

#[test]
fn a_place_that_was_just_taken_is_looked_for_again_and_is_no_attempt() {
    let story = tell(
        TestSight::new(1),
        &[
            ("ask 0", Some(Event::NoSlot)),
            ("pause 0", Some(Event::Paused)),
            ("ask 0", Some(OK)),
            ("end Reply", None),
        ],
    );
    assert_eq!(story.journey.attempts(), 1);
}

/// A request for an adapter that these replicas of four have in memory.
fn four_with_loaded(loaded: &[usize]) -> TestSight {
    let mut sight = TestSight::new(4);
    sight.adapter = Some(1);
    for &index in loaded {
        sight.replicas[index].has_loaded = true;
    }
    sight
}

#[test]
fn a_replica_that_has_the_adapter_in_memory_comes_first() {
    for seed in 0..20 {
        let mut story = Story::of(four_with_loaded(&[2]));
        (story.rng, story.ticket) = (fastrand::Rng::with_seed(seed), seed);
        let Story { journey, sight, now, rng, .. } = &mut story;
        let decision = journey.consider(sight, *now, rng);
        assert_eq!(decision.planned.map(|it| it.reason), Ok(Reason::Adapter));
        check(&mut story, &[("ask 2", Some(UNSENT))]);
        let next = short(&story.next());
        assert!(next.starts_with("ask") && next != "ask 2", "{next}");
    }
}

#[test]
fn an_adapter_in_memory_is_worth_no_wait_and_no_crowd() {
    let asked = |sight: TestSight| {
        let mut story = Story::of(sight);
        short(&story.next())
    };
    let with_in_flight = |in_flight: [u32; 4], limit: u32| {
        let mut sight = four_with_loaded(&[2]);
        for (replica, in_flight) in sight.replicas.iter_mut().zip(in_flight) {
            (replica.in_flight, replica.limit) = (in_flight, limit);
        }
        sight
    };
    assert_eq!(asked(with_in_flight([0, 0, 3, 0], 100)), "ask 2");
    assert_ne!(asked(with_in_flight([0, 0, 8, 0], 100)), "ask 2", "twice the mean and a batch");
    assert_eq!(asked(with_in_flight([8, 8, 8, 8], 100)), "ask 2");
    assert_ne!(asked(with_in_flight([0, 0, 2, 0], 2)), "ask 2", "it has no slot");
}

#[test]
fn who_loses_place_after_place_pauses_and_is_turned_away_in_the_end() {
    let at_once = [("ask 0", Some(Event::NoSlot)), ("pause 0", Some(Event::Paused))];
    let later = [("ask 0", Some(Event::NoSlot)), ("pause 20", Some(Event::Paused))];
    let mut story = tell(TestSight::new(1), &at_once.repeat(4));
    check(&mut story, &later.repeat(3));
    story.now += ms(10_000);
    check(&mut story, &[("ask 0", Some(Event::NoSlot)), ("no slot waited", None)]);
}

#[test]
fn a_request_takes_a_number_only_if_replicas_take_turns_for_it() {
    let number = ("take ticket", Some(Event::Ticket(4)));
    let free = || TestSight::new(2);
    let mut pinned = free();
    pinned.pinned = Some(ReplicaSlot(1));
    let mut resting = free();
    resting.busy_until = Some(*START + ms(60_000));
    let mut only_there = free().with_regions(&["b"]);
    only_there.only_region = Some("b".into());
    let mut renamed = free();
    (renamed.stand_ins, renamed.starts_with_stand_in) = (1, true);
    check_each(&mut Story::of(free()), &[number, ("ask 0", None)]);
    for (sight, step) in [
        (pinned, "ask 1"),
        (resting, "refused all_resting"),
        (TestSight::new(0), "refused no_replica"),
        (only_there, "forward b"),
        (renamed, "stand in"),
    ] {
        check_each(&mut Story::of(sight), &[(step, None)]);
    }
}

#[test]
fn the_deadline_is_looked_at_before_a_replica_is_asked() {
    let mut sight = TestSight::new(1);
    sight.inquiry.deadline = Deadline::after(*START, ms(0));
    tell(sight, &[("refused deadline_passed", None)]);
}

#[test]
fn a_pinned_request_goes_to_its_replica_and_to_no_other() {
    let mut sight = TestSight::new(3);
    sight.pinned = Some(ReplicaSlot(2));
    tell(sight, &[("ask 2", Some(UNSENT)), ("end LastFailure", None)]);
}

#[test]
fn a_pinned_request_waits_for_a_place_as_long_as_it_may() {
    let mut sight = TestSight::new(1).with_regions(&["b"]);
    sight.pinned = Some(ReplicaSlot(0));
    let mut story = tell(
        sight,
        &[
            ("ask 0", Some(Event::NoSlot)),
            ("pause 20", Some(Event::Paused)),
            ("ask 0", Some(Event::NoSlot)),
            ("pause 20", Some(Event::Paused)),
        ],
    );
    story.now += ms(10_000);
    check(&mut story, &[("ask 0", Some(Event::NoSlot)), ("no slot waited", None)]);
}

#[test]
fn a_stream_goes_on_at_none_of_those_that_broke_it_off() {
    let mut story = Story::of(abroad());
    story.sight.ahead = 0;
    story.sight.replicas = vec![story.sight.replicas[0]; 2];
    story.sight.best = 2;
    story.sight.regroup();
    story.sight.replicas.iter_mut().for_each(|replica| replica.in_flight = 0);
    let unasked = Unasked { replicas: vec![ReplicaSlot(0)], regions: vec!["b".into()] };
    story.journey = story.journey.clone().without(unasked);
    check(&mut story, &[("ask 1", Some(UNSENT)), ("forward c", None)]);
}

#[test]
fn a_stream_does_not_return_after_a_wait_to_a_region_that_broke_it_off() {
    let mut story = Story::of(abroad());
    story.sight.ahead = 0;
    let unasked = Unasked { replicas: Vec::new(), regions: vec!["b".into(), "c".into()] };
    story.journey = story.journey.clone().without(unasked);
    check(&mut story, &[("wait", Some(Event::Paused))]);
    story.now += ms(300);
    check(&mut story, &[("wait", None)]);
}

#[test]
fn replicas_keep_their_marks_under_another_view() {
    let mut story = tell(TestSight::new(3), &[("ask 0", Some(UNSENT))]);
    story.journey.follow_view(|slot| Some(ReplicaSlot(slot.0 + 1)));
    check(&mut story, &[("ask 0", None)]);
}
