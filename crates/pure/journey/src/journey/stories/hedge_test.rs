//! A second replica beside a silent one.

use super::super::test_sight::{Story, TestSight, check, check_each, short};
use super::{OK, UNSENT};
use crate::Event;

fn hedged() -> Story {
    let mut sight = TestSight::new(3);
    sight.is_repeatable = true;
    let mut story = Story::of(sight);
    assert!(!story.journey.may_hedge(&story.sight), "nothing is asked yet");
    assert_eq!(short(&story.next()), "ask 0");
    story.tell(Event::Asked);
    story
}

#[test]
fn a_second_replica_is_asked_beside_a_silent_one() {
    let mut story = hedged();
    assert!(story.journey.may_hedge(&story.sight));
    story.tell(Event::Silent);
    check(&mut story, &[("hedge 1", Some(Event::Hedged { is_asked: true }))]);
    assert_eq!(story.journey.attempts(), 2);
    check(&mut story, &[("listen", Some(UNSENT)), ("ask 2", Some(OK)), ("end Reply", None)]);
}

#[test]
fn a_hedge_without_a_place_is_no_attempt_and_leaves_the_replica_untried() {
    let mut story = hedged();
    story.tell(Event::Silent);
    check(&mut story, &[("hedge 1", Some(Event::Hedged { is_asked: false }))]);
    assert_eq!(story.journey.attempts(), 1);
    check(&mut story, &[("listen", Some(UNSENT)), ("ask 1", None)]);
}

#[test]
fn no_second_replica_is_asked_for_while_others_wait_or_where_none_is_left() {
    let mut story = hedged();
    story.sight.is_quiet = false;
    story.tell(Event::Silent);
    check_each(&mut story, &[("listen", Some(OK)), ("end Reply", None)]);
    let mut story = hedged();
    story.sight.replicas[1..].iter_mut().for_each(|replica| replica.in_flight = replica.limit);
    story.tell(Event::Silent);
    check_each(&mut story, &[("listen", Some(OK)), ("end Reply", None)]);
}

#[test]
fn a_hedge_that_was_refused_is_not_asked_for_again() {
    let mut story = hedged();
    story.tell(Event::Silent);
    let refused = Some(Event::Hedged { is_asked: false });
    check_each(&mut story, &[("hedge 1", refused), ("listen", Some(UNSENT))]);
    check(&mut story, &[("ask 1", None)]);
    story.tell(Event::Asked);
    assert!(!story.journey.may_hedge(&story.sight));
}

#[test]
fn only_a_first_attempt_that_can_be_repeated_is_hedged() {
    let mut story = hedged();
    story.tell(UNSENT);
    story.next();
    story.tell(Event::Asked);
    assert!(!story.journey.may_hedge(&story.sight), "a second attempt");
    let mut story = hedged();
    story.sight.is_repeatable = false;
    assert!(!story.journey.may_hedge(&story.sight));
    story.sight.is_repeatable = true;
    story.tell(Event::Silent);
    assert!(!story.journey.may_hedge(&story.sight), "once");
}
