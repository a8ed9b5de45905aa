//! Retries of attempts.

use super::super::test_sight::{START, Story, TestSight, check, ms, short};
use super::{BROKEN, ERROR, NO_ROOM, OK, RESET, UNSENT, tell};
use crate::{Event, RetrySafety, StatusClass};
use spillway_types::ReplicaSlot;

#[test]
fn what_was_not_sent_is_sent_to_another_replica() {
    let steps = [("ask 0", Some(UNSENT)), ("ask 1", Some(OK)), ("end Reply", None)];
    let story = tell(TestSight::new(3), &steps);
    assert_eq!((story.journey.attempts(), story.sight.retries.get()), (2, 9));
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
    assert_eq!(story.sight.retries.get(), 8, "the last failure takes nothing from the budget");
}

#[test]
fn a_retry_needs_the_budget_a_repeatable_body_and_safety() {
    let ended = &[("end LastFailure", None)];
    let sight = TestSight::new(3);
    sight.retries.set(0);
    let mut story = Story::of(sight);
    check(&mut story, &[("ask 0", Some(UNSENT))]);
    check(&mut story, ended);
    for event in [
        BROKEN,
        Event::Failed {
            safety: RetrySafety::Unsent,
            is_fault: true,
            was_kept: false,
            can_repeat: false,
        },
    ] {
        let mut story = tell(TestSight::new(3), &[("ask 0", Some(event))]);
        assert_eq!(story.sight.retries.get(), 10, "the budget is asked last");
        check(&mut story, ended);
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
    };
    tell(sight, &[("ask 0", Some(no_fault)), ("end LastFailure", None)]);
}

#[test]
fn on_says_which_retry_follows() {
    let mut story = Story::of(TestSight::new(3));
    for (expected, event) in
        [(Some(RetrySafety::Unsent), UNSENT), (Some(RetrySafety::Reset), RESET), (None, RESET)]
    {
        story.next();
        story.tell(Event::Asked);
        assert_eq!(story.journey.on(event, &story.sight, story.now), expected);
    }
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
            ("ask 0 anew", Some(Event::NoPlace)),
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
    };
    let mut story = tell(
        TestSight::new(2),
        &[
            ("ask 0", Some(broken)),
            ("ask 1", Some(broken)),
            ("ask 1 anew", Some(Event::NoPlace)),
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
