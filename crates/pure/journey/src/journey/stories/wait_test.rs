//! Waiting requests: for how long, and for what.

use spillway_route::ShedReason;
use spillway_types::Deadline;

use super::super::test_sight::{RESTING, START, Story, TestSight, check, check_each, ms, short};
use super::region_test::abroad;
use super::tenant_test::four_with_much;
use super::{NOT_CONNECTED, OK, UNSENT, tell};
use crate::{Claim, Ending, Event, Position, ResidencyDenial, Step};

#[test]
fn a_request_without_a_place_waits_and_has_one_at_its_turn() {
    let mut story = tell(TestSight::new(1).full(), &[("wait", None)]);
    assert_eq!(story.journey.position(), Position::Queued);
    story.sight.replicas[0].in_flight = 0;
    story.now += ms(100);
    let due = story.now;
    check(&mut story, &[("wait", Some(Event::Turn { due })), ("ask 0", Some(OK))]);
    assert_eq!(
        (story.journey.position(), story.journey.claim()),
        (Position::Outside, Claim::Turn(due))
    );
    assert_eq!(story.journey.waits_since(), Some(*START));
}

#[test]
fn a_turn_in_vain_is_passed_on_and_the_claim_is_kept() {
    let mut story = tell(four_with_much(4), &[("wait", None)]);
    let due = story.now;
    check(&mut story, &[("wait", Some(Event::Turn { due }))]);
    let Step::Wait(terms) = story.next() else { panic!("it waits on") };
    assert!(terms.passes_turn_on);
    assert_eq!(terms.turn_by, Some(due));
    check(&mut story, &[("wait", Some(Event::Paused))]);
    let Step::Wait(terms) = story.next() else { panic!("it waits on") };
    assert!(!terms.passes_turn_on, "once");
}

#[test]
fn a_turn_in_vain_is_of_no_use_to_those_who_may_use_the_same_places() {
    let passes_on = |sight: TestSight| {
        let mut story = tell(sight, &[("wait", None)]);
        let due = story.now;
        check(&mut story, &[("wait", Some(Event::Turn { due }))]);
        let Step::Wait(terms) = story.next() else { panic!("it waits on") };
        terms.passes_turn_on
    };
    assert!(!passes_on(TestSight::new(1).full()));
    let mut other = four_with_much(4);
    other.tenant = Some(2);
    assert!(!passes_on(other));
    // With one replica left a tenant may use that one, whatever it has.
    let mut only = four_with_much(4);
    only.best = 1;
    only.regroup();
    assert!(!passes_on(only));
    assert!(passes_on(four_with_much(4)));
    let mut resting = TestSight::new(1).full();
    resting.tenant = Some(RESTING);
    resting.replicas[0].rests_until = Some(*START + ms(5_000));
    assert!(passes_on(resting));
}

#[test]
fn it_leaves_when_it_has_waited_for_as_long_as_it_may() {
    let after = |change: fn(&mut TestSight)| {
        let mut sight = TestSight::new(1).full();
        change(&mut sight);
        let mut story = Story::of(sight);
        let Step::Wait(terms) = story.next() else { panic!("it waits") };
        let left = terms.until - story.now;
        story.tell(Event::Paused);
        story.now = terms.until;
        let ended = short(&story.next());
        (left, ended)
    };
    assert_eq!(after(|_| ()), (ms(10_000), "shed waited".to_owned()));
    let client = after(|sight| sight.patience = Some(ms(2_000)));
    assert_eq!(client, (ms(2_000), "shed waited".to_owned()));
    let deadline =
        |sight: &mut TestSight| sight.inquiry.deadline = Deadline::after(*START, ms(700));
    assert_eq!(after(deadline), (ms(700), "refused deadline_passed".to_owned()));
}

#[test]
fn a_wait_that_is_clearly_too_long_is_not_begun_and_not_ended_by_a_prediction() {
    let mut sight = TestSight::new(1).full();
    sight.wait_ms = Some(20_000);
    tell(sight, &[("shed waited", None)]);
    let mut story = tell(TestSight::new(1).full(), &[("wait", Some(Event::Paused))]);
    story.sight.wait_ms = Some(20_000);
    check(&mut story, &[("wait", None)]);
    let mut sight = TestSight::new(1).full();
    sight.wait_ms = Some(20_000);
    let mut story = Story::of(sight);
    story.journey.redeem_promise();
    check(&mut story, &[("wait", None)]);
    assert_eq!(story.journey.claim(), Claim::Promise);
}

#[test]
fn what_the_queue_says_holds() {
    let full = || TestSight::new(1).full();
    tell(full(), &[("wait", Some(Event::QueueFull)), ("shed queue_full", None)]);
    let away = |reason| Event::SentAway { reason, retry_after: ms(3_000) };
    let pushed = away(ShedReason::PushedOut);
    tell(full(), &[("wait", Some(pushed)), ("sent away pushed_out", None)]);
    // The queue takes the end of the longest wait for a deadline.
    tell(full(), &[("wait", Some(away(ShedReason::Late))), ("sent away waited", None)]);
}

#[test]
fn a_queue_without_room_sheds_and_one_of_no_length_too() {
    let mut sight = TestSight::new(1).full();
    sight.has_room = false;
    tell(sight, &[("shed queue_full", None)]);
}

#[test]
fn refusals_of_regions_are_forgotten_while_it_waits() {
    let mut story = tell(
        abroad(),
        &[("forward b", Some(NOT_CONNECTED)), ("forward c", Some(NOT_CONNECTED)), ("wait", None)],
    );
    story.now += ms(100);
    check(&mut story, &[("wait", Some(Event::Paused)), ("wait", None)]);
    story.now += ms(150);
    check(&mut story, &[("wait", Some(Event::Paused)), ("forward b", None)]);
    assert_eq!(
        story.journey.position(),
        Position::Outside,
        "it would be called while served there"
    );
}

#[test]
fn a_short_pause_of_all_replicas_is_waited_for_and_a_long_one_is_not() {
    let pausing = |pause_ms| {
        let mut sight = TestSight::new(2);
        sight.busy_until = Some(*START + ms(pause_ms));
        sight
    };
    let mut story = Story::of(pausing(100));
    let Step::Wait(terms) = story.next() else { panic!("it waits") };
    assert_eq!(terms.pause, ms(105));
    let story = tell(pausing(40_000), &[("refused all_resting", None)]);
    let mut story = Story::of(story.sight);
    let Step::End(Ending::Refused(refused)) = story.next() else { panic!("refused") };
    assert_eq!(refused.retry_at, Some(*START + ms(40_000)));
    let mut sight = pausing(100);
    sight.rules.queue_count_max = 0;
    tell(sight, &[("refused all_resting", None)]);
    // Even if its route allows a longer wait.
    let mut sight = pausing(40_000);
    sight.rules.wait_ms_max = 100_000;
    tell(sight, &[("refused all_resting", None)]);
}

#[test]
fn replicas_that_pause_for_one_tenant_pause_for_its_requests() {
    let mut sight = TestSight::new(2);
    for replica in &mut sight.replicas {
        replica.rests_until = Some(*START + ms(50_000));
    }
    tell(sight, &[("ask 0", None)]);
    let mut sight = TestSight::new(2);
    sight.tenant = Some(RESTING);
    sight.replicas[0].rests_until = Some(*START + ms(50_000));
    tell(sight, &[("ask 1", None)]);
    let mut sight = TestSight::new(1);
    sight.tenant = Some(RESTING);
    sight.replicas[0].rests_until = Some(*START + ms(50_000));
    tell(sight, &[("refused all_resting", None)]);
}

#[test]
fn less_urgent_requests_wait_less_while_replicas_are_missing() {
    let degraded = |priority, wait_ms| {
        let mut sight = TestSight::new(1).full();
        sight.healthy_permille = 300;
        sight.rules.degraded_below_permille = 600;
        sight.inquiry.priority = priority;
        sight.wait_ms = Some(wait_ms);
        short(&Story::of(sight).next())
    };
    assert_eq!(degraded(0, 5_000), "wait");
    assert_eq!(degraded(2, 1_000), "wait");
    assert_eq!(degraded(2, 5_000), "shed degraded");
    assert_eq!(degraded(3, 1), "shed degraded");
}

#[test]
fn a_limit_that_is_a_guess_sends_no_request_to_another_region() {
    let mut sight = abroad();
    sight.ahead = 0;
    sight.replicas[0].is_guess = true;
    tell(sight, &[("ask 0", None)]);
    // A session is not moved within the region for a guess either.
    let mut sight = TestSight::new(1).full();
    sight.replicas[0].is_guess = true;
    sight.inquiry.affinity = Some(5);
    tell(sight, &[("ask 0", None)]);
}

fn slow_first_token(first_token_ms: f32) -> TestSight {
    let mut sight = TestSight::new(1);
    sight.rules.slo = Some(ms(500));
    sight.first_token_ms = Some(first_token_ms);
    sight.regroup();
    sight
}

#[test]
fn a_first_token_that_is_predicted_too_late_is_refused_but_for_a_probe() {
    tell(slow_first_token(100.0), &[("ask 0", None)]);
    tell(slow_first_token(2_000.0), &[("too late slo", None)]);
    let mut story = Story::of(slow_first_token(2_000.0));
    story.late_probes = 1;
    check(&mut story, &[("ask 0", None)]);
}

#[test]
fn only_a_request_that_would_be_refused_takes_the_turn_to_try_a_prediction() {
    let number = ("take ticket", Some(Event::Ticket(0)));
    let mut story = Story::of(slow_first_token(100.0));
    check_each(&mut story, &[number, ("ask 0", None)]);
    let probe = |is_allowed| ("take late probe", Some(Event::LateProbe { is_allowed }));
    for (is_allowed, step) in [(true, "ask 0"), (false, "too late slo")] {
        let mut story = Story::of(slow_first_token(2_000.0));
        check_each(&mut story, &[number, probe(is_allowed), (step, None)]);
    }
    // Without the turn another model is asked, or another moment is looked for.
    let mut sight = slow_first_token(2_000.0);
    sight.stand_ins = 1;
    check_each(&mut Story::of(sight), &[number, probe(false), ("stand in", None)]);
    let mut story = Story::of(slow_first_token(2_000.0));
    story.journey.redeem_promise();
    check_each(&mut story, &[number, probe(false), ("pause 250", None)]);
    // The rules may have changed in the meantime.
    let mut sight = slow_first_token(2_000.0);
    sight.permission = Err(ResidencyDenial::Withdrawn);
    let denied = "outside residency Withdrawn";
    check_each(&mut Story::of(sight), &[number, probe(true), (denied, None)]);
}

/// A request whose reply has so many tokens, of 15 ms each, and comes in one piece.
fn in_one_piece(tokens: u32, deadline_ms: u64) -> TestSight {
    let mut sight = TestSight::new(1);
    sight.first_token_ms = Some(100.0);
    sight.regroup();
    sight.inquiry.whole_tokens = Some(tokens);
    sight.inquiry.deadline = Deadline::after(*START, ms(deadline_ms));
    sight
}

#[test]
fn a_deadline_is_for_the_end_of_a_reply_in_one_piece_and_the_first_token_of_a_stream() {
    tell(in_one_piece(300, 1_500), &[("too late late", None)]);
    tell(in_one_piece(300, 5_000), &[("ask 0", None)]);
    tell(in_one_piece(50, 1_500), &[("ask 0", None)]);
    let mut stream = in_one_piece(300, 1_500);
    stream.inquiry.whole_tokens = None;
    tell(stream, &[("ask 0", None)]);
    let mut objective = in_one_piece(300, 60_000);
    objective.rules.slo = Some(ms(500));
    tell(objective, &[("ask 0", None)]);
}

#[test]
fn a_reply_in_one_piece_that_would_end_too_late_everywhere_goes_nowhere() {
    let elsewhere = |deadline_ms| in_one_piece(300, deadline_ms).full().with_regions(&["b"]);
    tell(elsewhere(1_500), &[("shed late", None)]);
    tell(elsewhere(5_000), &[("forward b", None)]);
    tell(in_one_piece(300, 1_500).with_regions(&["b"]), &[("too late late", None)]);
}

#[test]
fn a_request_that_came_as_told_looks_for_a_moment_at_which_its_first_token_comes_in_time() {
    let mut story = Story::of(slow_first_token(2_000.0));
    story.journey.redeem_promise();
    for _ in 0..6 {
        check(&mut story, &[("pause 250", Some(Event::Paused))]);
        story.now += ms(250);
    }
    // It has the whole time of the objective from then on, although that has passed since it came.
    story.sight.first_token_ms = Some(400.0);
    check(&mut story, &[("ask 0", None)]);
}

#[test]
fn a_request_that_came_as_told_and_finds_no_moment_is_refused_after_eight_seconds() {
    let mut story = Story::of(slow_first_token(2_000.0));
    story.journey.redeem_promise();
    story.now += ms(7_900);
    check(&mut story, &[("pause 100", Some(Event::Paused))]);
    story.now += ms(100);
    check(&mut story, &[("too late slo", None)]);
}

#[test]
fn a_turn_that_misses_the_objective_does_not_send_a_request_away_that_came_as_told() {
    let mut sight = slow_first_token(100.0).full();
    sight.wait_ms = Some(200);
    let mut story = Story::of(sight);
    story.journey.redeem_promise();
    check(&mut story, &[("wait", None)]);
    story.now += ms(900);
    let due = story.now;
    story.sight.replicas[0].in_flight = 0;
    story.sight.first_token_ms = Some(2_000.0);
    check(&mut story, &[("wait", Some(Event::Turn { due })), ("pause 250", Some(Event::Paused))]);
}

#[test]
fn a_request_that_was_sent_before_is_not_refused_for_a_prediction() {
    let mut sight = slow_first_token(100.0);
    sight.replicas.push(sight.replicas[0]);
    sight.best = 2;
    sight.regroup();
    let mut story = Story::of(sight);
    let Step::Ask { attempt, .. } = story.next() else { panic!("asked") };
    story.tell(Event::Asked);
    story.sight.first_token_ms = Some(2_000.0);
    story.tell(UNSENT);
    let Step::Ask { attempt: second, .. } = story.next() else { panic!("asked again") };
    assert_ne!(attempt.slot, second.slot);
}

#[test]
fn a_wait_tells_when_a_replica_must_have_the_request() {
    let mut sight = TestSight::new(1).full();
    sight.rules.slo = Some(ms(5_000));
    let mut story = Story::of(sight);
    let Step::Wait(terms) = story.next() else { panic!("it waits") };
    assert_eq!(terms.begin_by, Some(*START + ms(5_000)));
}

/// A region whose replicas are out, on a route that waits for those that start.
fn starting(replicas: usize) -> TestSight {
    let mut sight = TestSight::new(replicas);
    sight.rules.start_wait_ms = 20_000;
    sight.is_out = true;
    sight
}

#[test]
fn where_the_route_says_so_a_request_waits_for_a_replica_that_starts() {
    let mut story =
        tell(starting(1), &[("wait", Some(Event::Paused)), ("wait", Some(Event::Paused))]);
    story.sight.is_out = false;
    story.now += ms(15_000);
    check(&mut story, &[("ask 0", Some(OK)), ("end Reply", None)]);
    // By default nothing is to be gained by waiting: the last resort is asked at once.
    let mut at_once = starting(1);
    at_once.rules.start_wait_ms = 0;
    tell(at_once, &[("ask 0", Some(OK)), ("end Reply", None)]);
}

#[test]
fn a_replica_that_refuses_connections_is_asked_again_until_the_wait_is_over() {
    let mut sight = starting(1);
    sight.is_out = false;
    let mut story = Story::of(sight);
    // However often: nothing was sent, so that no attempt counts.
    for _ in 0..9 {
        check(&mut story, &[("ask 0", Some(UNSENT)), ("wait", Some(Event::Paused))]);
        story.now += ms(250);
    }
    story.now = *START + ms(20_000);
    check(&mut story, &[("ask 0", Some(UNSENT)), ("end LastFailure", None)]);
}

#[test]
fn a_request_waits_for_a_start_no_longer_than_its_client_does() {
    let longest = |change: fn(&mut TestSight)| {
        let mut sight = starting(1);
        change(&mut sight);
        let mut story = Story::of(sight);
        let Step::Wait(terms) = story.next() else { panic!("it waits") };
        (terms.until - story.now, terms.over)
    };
    let over = ShedReason::NobodyInReach;
    assert_eq!(longest(|_| ()), (ms(20_000), over));
    assert_eq!(longest(|sight| sight.patience = Some(ms(2_000))), (ms(2_000), over));
    let deadline = |sight: &mut TestSight| {
        sight.inquiry.deadline = Deadline::after(*START, ms(900));
    };
    assert_eq!(longest(deadline), (ms(900), over));
}

#[test]
fn a_request_that_may_have_been_served_does_not_wait_for_a_start() {
    let mut sight = starting(1);
    sight.is_out = false;
    tell(sight, &[("ask 0", Some(super::BROKEN)), ("end LastFailure", None)]);
}

#[test]
fn a_request_waits_for_a_start_only_if_no_other_replica_or_region_serves_it() {
    let mut two = starting(2);
    two.is_out = false;
    tell(two, &[("ask 0", Some(UNSENT)), ("ask 1", Some(OK)), ("end Reply", None)]);
}
