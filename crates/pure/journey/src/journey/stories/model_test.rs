//! Requests that change to stand-in models.

use spillway_route::PlanError;

use super::super::test_sight::{START, Story, TestReplica, TestSight, check, ms, short};
use super::{OK, RENAMED, UNSENT, tell};
use crate::{Claim, Ending, Event, Step};

#[test]
fn another_model_stands_in_where_the_first_has_no_place() {
    let mut sight = TestSight::new(1).full();
    sight.stand_ins = 1;
    let mut story = tell(sight, &[("stand in", None)]);
    story.sight.stand_ins = 0;
    story.sight.replicas[0].in_flight = 0;
    check(&mut story, &[("stand in", Some(RENAMED)), ("ask 0", Some(OK)), ("end Reply", None)]);
}

#[test]
fn a_stand_in_that_is_none_leaves_the_request_with_its_model() {
    let mut sight = TestSight::new(1).full();
    sight.stand_ins = 1;
    let mut story = tell(sight, &[("stand in", None)]);
    story.sight.stand_ins = 0;
    let none = Some(Event::StoodIn { is_renamed: false });
    check(&mut story, &[("stand in", none), ("wait", None)]);
}

#[test]
fn the_last_attempt_is_kept_for_another_model() {
    let mut sight = TestSight::new(3);
    sight.stand_ins = 1;
    let mut story =
        tell(sight, &[("ask 0", Some(UNSENT)), ("ask 1", Some(UNSENT)), ("stand in", None)]);
    story.sight.stand_ins = 0;
    check(&mut story, &[("stand in", Some(RENAMED)), ("ask 2", None)]);
}

#[test]
fn a_stand_in_takes_a_number_in_its_own_group_and_a_retry_takes_none() {
    let mut sight = TestSight::new(3);
    sight.starts_with_stand_in = true;
    let mut story = tell(sight, &[("ask 0", Some(UNSENT))]);
    assert_eq!(short(&story.next()), "ask 1");
    assert_eq!(story.ticket, 1);
    story.tell(Event::NoSlot);
    story.tell(Event::Paused);
    story.sight.stand_ins = 1;
    check(&mut story, &[("stand in", Some(RENAMED))]);
    (story.sight.stand_ins, story.sight.starts_with_stand_in) = (0, false);
    check(&mut story, &[("ask 1", None)]);
    assert_eq!(story.ticket, 2);
}

#[test]
fn a_model_in_a_bad_state_is_passed_over_at_once() {
    let mut sight = TestSight::new(1);
    (sight.stand_ins, sight.starts_with_stand_in) = (1, true);
    tell(sight, &[("stand in", None)]);
}

#[test]
fn a_claim_is_one_on_the_first_model_and_its_refusal_is_what_counts() {
    let mut sight = TestSight::new(0);
    sight.stand_ins = 1;
    let mut story = Story::of(sight);
    story.journey.redeem_promise();
    check(&mut story, &[("stand in", Some(RENAMED))]);
    assert_eq!(story.journey.claim(), Claim::Newcomer);
    story.sight.stand_ins = 0;
    story.sight.busy_until = Some(*START + ms(60_000));
    let busy = TestReplica { limit: 1, ..TestSight::new(1).replicas[0] };
    story.sight.replicas = vec![busy];
    story.sight.best = 1;
    story.sight.regroup();
    let Step::End(Ending::Refused(refused)) = story.next() else { panic!("refused") };
    assert_eq!(refused.refusal, PlanError::NoReplica);
    assert_eq!(refused.retry_at, None);
}
