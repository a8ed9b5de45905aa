//! Retries of attempts.

use spillway_types::ReplicaSlot;

use super::super::test_sight::{START, Story, TestSight, check, check_each, ms, short};
use super::{BROKEN, ERROR, LACKS_MODEL, NO_ROOM, OK, RESET, UNSENT, tell};
use crate::{Event, RetrySafety, StatusClass};

const ALLOWED: Option<Event> = Some(Event::Retry { is_allowed: true });
const REFUSED: Option<Event> = Some(Event::Retry { is_allowed: false });

#[test]
fn what_was_not_sent_is_sent_to_another_replica() {
    let steps = [("ask 0", Some(UNSENT)), ("ask 1", Some(OK)), ("end Reply", None)];
    let story = tell(TestSight::new(3), &steps);
    assert_eq!((story.journey.attempts(), story.retries), (2, 9));
}

#[test]
fn a_replica_without_the_model_costs_neither_an_attempt_nor_a_retry() {
    let lacks = Some(LACKS_MODEL);
    let steps =
        [("ask 0", lacks), ("ask 1", Some(UNSENT)), ("ask 2", Some(OK)), ("end Reply", None)];
    let story = tell(TestSight::new(3), &steps);
    assert_eq!(story.retries, 9, "the budget is asked for the other retry alone");
    let steps = [("ask 0", lacks), ("ask 1", lacks), ("ask 2", lacks), ("end LastFailure", None)];
    let story = tell(TestSight::new(3), &steps);
    assert_eq!(story.retries, 10);
    let gone = Event::LacksModel { can_repeat: false };
    tell(TestSight::new(2), &[("ask 0", Some(gone)), ("end LastFailure", None)]);
}

#[test]
fn attempts_end_at_their_most() {
    let steps = [
        ("ask 0", Some(UNSENT)),
        ("ask 1", Some(RESET)),
        ("ask 2", Some(UNSENT)),
        ("end LastFailure", None),
    ];
    let story = tell(TestSight::new(3), &steps);
    assert_eq!(story.retries, 8, "the last failure takes nothing from the budget");
}

#[test]
fn a_retry_needs_the_budget_a_repeatable_body_and_safety() {
    let ended = &[("end LastFailure", None)];
    let mut story = Story::of(TestSight::new(3));
    story.retries = 0;
    check(&mut story, &[("ask 0", Some(UNSENT))]);
    check(&mut story, ended);
    for event in [
        BROKEN,
        Event::Failed {
            safety: RetrySafety::Unsent,
            is_fault: true,
            was_kept: false,
            can_repeat: false,
            is_death: false,
        },
    ] {
        let mut story = tell(TestSight::new(3), &[("ask 0", Some(event))]);
        check_each(&mut story, ended);
    }
}

#[test]
fn a_key_makes_a_repetition_safe_after_a_fault_and_only_then() {
    let mut sight = TestSight::new(3);
    sight.is_idempotent = true;
    tell(sight, &[("ask 0", Some(BROKEN)), ("ask 1", Some(OK)), ("end Reply", None)]);
    let mut sight = TestSight::new(3);
    sight.is_idempotent = true;
    let no_fault = Event::Failed {
        safety: RetrySafety::Never,
        is_fault: false,
        was_kept: false,
        can_repeat: true,
        is_death: false,
    };
    tell(sight, &[("ask 0", Some(no_fault)), ("end LastFailure", None)]);
}

#[test]
fn the_budget_is_asked_once_for_each_retry_that_the_rules_allow() {
    let mut story = Story::of(TestSight::new(3));
    let (number, asked) = (Some(Event::Ticket(0)), Some(Event::Asked));
    check_each(&mut story, &[("take ticket", number), ("ask 0", asked), ("listen", Some(UNSENT))]);
    check_each(&mut story, &[("take retry Unsent", ALLOWED), ("ask 1", asked)]);
    check_each(&mut story, &[("listen", Some(RESET)), ("take retry Reset", ALLOWED)]);
    check_each(&mut story, &[("ask 2", asked), ("listen", Some(RESET)), ("end LastFailure", None)]);
}

#[test]
fn where_the_budget_refuses_a_retry_the_last_result_ends_the_journey() {
    for (result, end) in [(UNSENT, "end LastFailure"), (NO_ROOM, "end Reply")] {
        let mut story = tell(TestSight::new(3), &[("ask 0", Some(result))]);
        check_each(&mut story, &[("take retry Unsent", REFUSED), (end, None)]);
    }
    // A reply that was held says more than the failure after it.
    let mut story = tell(TestSight::new(3), &[("ask 0", Some(NO_ROOM)), ("ask 1", Some(RESET))]);
    check_each(&mut story, &[("take retry Reset", REFUSED), ("end HeldReply", None)]);
}

#[test]
fn a_reply_of_no_room_is_held_while_a_better_one_is_sought() {
    tell(TestSight::new(2), &[("ask 0", Some(NO_ROOM)), ("ask 1", Some(OK)), ("end Reply", None)]);
    tell(
        TestSight::new(2),
        &[("ask 0", Some(NO_ROOM)), ("ask 1", Some(UNSENT)), ("end HeldReply", None)],
    );
    tell(TestSight::new(1), &[("ask 0", Some(NO_ROOM)), ("end HeldReply", None)]);
}

#[test]
fn an_error_reply_is_replaced_only_with_a_key() {
    tell(TestSight::new(2), &[("ask 0", Some(ERROR)), ("end Reply", None)]);
    let mut sight = TestSight::new(2);
    sight.is_idempotent = true;
    tell(sight, &[("ask 0", Some(ERROR)), ("ask 1", Some(OK)), ("end Reply", None)]);
}

#[test]
fn statuses_are_sorted() {
    let of = |status| StatusClass::of(status);
    assert_eq!([200, 302, 404, 501].map(of), [StatusClass::Final; 4]);
    assert_eq!([429, 503].map(of), [StatusClass::NoRoom; 2]);
    assert_eq!([500, 502, 504].map(of), [StatusClass::Failed; 3]);
}

#[test]
fn a_kept_connection_that_broke_is_tried_anew_when_no_other_replica_is_left() {
    let retry_on_new_connection = Event::Failed {
        safety: RetrySafety::Unsent,
        is_fault: false,
        was_kept: true,
        can_repeat: true,
        is_death: false,
    };
    tell(
        TestSight::new(1),
        &[("ask 0", Some(retry_on_new_connection)), ("ask 0 anew", Some(OK)), ("end Reply", None)],
    );
    tell(
        TestSight::new(2),
        &[("ask 0", Some(retry_on_new_connection)), ("ask 1", Some(OK)), ("end Reply", None)],
    );
    tell(
        TestSight::new(1),
        &[
            ("ask 0", Some(retry_on_new_connection)),
            ("ask 0 anew", Some(Event::NoSlot)),
            ("pause 0", Some(Event::Paused)),
            ("ask 0 anew", Some(OK)),
            ("end Reply", None),
        ],
    );
}

#[test]
fn a_broken_connection_is_renewed_to_the_replica_that_had_it_also_under_another_view() {
    let broken = Event::Failed {
        safety: RetrySafety::Unsent,
        is_fault: false,
        was_kept: true,
        can_repeat: true,
        is_death: false,
    };
    let mut story = tell(
        TestSight::new(2),
        &[
            ("ask 0", Some(broken)),
            ("ask 1", Some(broken)),
            ("ask 1 anew", Some(Event::NoSlot)),
            ("pause 0", Some(Event::Paused)),
        ],
    );
    story.journey.follow_view(|slot| Some(ReplicaSlot(1 - slot.0)));
    check(&mut story, &[("ask 0 anew", None)]);
}

#[test]
fn a_fault_of_the_client_ends_it_whatever_was_held() {
    tell(TestSight::new(2), &[("ask 0", Some(Event::ClientFault)), ("end ClientFault", None)]);
}

#[test]
fn when_all_have_failed_one_of_the_next_best_standing_is_asked() {
    let mut sight = TestSight::new(3);
    sight.best = 2;
    sight.regroup();
    tell(
        sight,
        &[
            ("ask 0", Some(UNSENT)),
            ("ask 1", Some(UNSENT)),
            ("ask 2", Some(OK)),
            ("end Reply", None),
        ],
    );
    let mut sight = TestSight::new(3).full();
    sight.best = 2;
    sight.rules.queue_count_max = 0;
    sight.has_room = false;
    sight.regroup();
    sight.replicas[2].in_flight = 0;
    tell(sight, &[("shed queue_full", None)]);
}

#[test]
fn while_all_others_pause_none_of_the_next_best_standing_is_asked() {
    let mut sight = TestSight::new(2);
    sight.best = 1;
    sight.regroup();
    let mut story = Story::of(sight);
    assert_eq!(short(&story.next()), "ask 0");
    story.tell(Event::Asked);
    story.sight.busy_until = Some(*START + ms(60_000));
    story.tell(UNSENT);
    check(&mut story, &[("end LastFailure", None)]);
}

/// The connection broke with the request in the engine.
const DIED: Event = Event::Failed {
    safety: RetrySafety::Reset,
    is_fault: true,
    was_kept: false,
    can_repeat: true,
    is_death: true,
};

#[test]
fn a_request_is_tried_once_more_after_a_death_and_never_after_a_second() {
    let steps = [("ask 0", Some(DIED)), ("ask 1", Some(DIED)), ("end EnginesDied", None)];
    let story = tell(TestSight::new(3), &steps);
    assert_eq!((story.journey.attempts(), story.journey.deaths(), story.retries), (2, 2, 9));
    let once = [("ask 0", Some(DIED)), ("ask 1", Some(OK)), ("end Reply", None)];
    assert_eq!(tell(TestSight::new(3), &once).journey.deaths(), 1);
    // Failures that kill nothing count among the attempts alone.
    let mixed = [("ask 0", Some(DIED)), ("ask 1", Some(RESET)), ("ask 2", Some(OK))];
    tell(TestSight::new(3), &[&mixed[..], &[("end Reply", None)]].concat());
}

#[test]
fn deaths_of_earlier_journeys_count() {
    let mut story = Story::of(TestSight::new(3));
    story.journey = story.journey.clone().after_deaths(1);
    check(&mut story, &[("ask 0", Some(DIED)), ("end EnginesDied", None)]);
}
