//! Stories of single streams: the steps after a break, and their results.

use spillway_route::ShedReason;
use spillway_types::Deadline;

use super::test_stream::{
    FAILED, NOT_NOW, SHED, START, StreamStory, TestStream, broke, broke_with, check, died, lost,
    ms, of_cause, other, short,
};
use super::{
    BreakCause, StreamEnd, StreamEvent, StreamRest, StreamRetry, StreamStep, StreamTarget,
};
use crate::{Ending, ResidencyDenial};

const CONTINUED: Option<StreamEvent> = Some(StreamEvent::Continued);
const PAUSED: Option<StreamEvent> = Some(StreamEvent::Paused);

/// Checks a stream that begins in these surroundings. Returns the retries left in the budget.
#[track_caller]
fn tell(sight: TestStream, steps: &[(&str, Option<StreamEvent>)]) -> u32 {
    let mut story = StreamStory::of(sight);
    check(&mut story, steps);
    story.budget
}

#[test]
fn another_replica_continues_a_stream_and_each_continuation_is_a_retry() {
    let left = tell(
        TestStream::new(&["a", "b", "c"]),
        &[
            ("relay", broke("a")),
            ("try but a", CONTINUED),
            ("relay", broke("b")),
            ("try but a b", CONTINUED),
            ("relay", None),
        ],
    );
    assert_eq!(left, 7);
}

#[test]
fn a_stream_has_so_many_continuations_and_no_more() {
    let mut sight = TestStream::new(&["a", "b", "c"]);
    sight.rules.count_max = 1;
    let once = [("relay", broke("a")), ("try but a", CONTINUED), ("relay", broke("b"))];
    let left = tell(sight.clone(), &[&once[..], &[("end Count", None)]].concat());
    assert_eq!(left, 8, "a continuation that is not allowed takes nothing from the budget");
    sight.rules.count_max = 0;
    tell(sight, &[("relay", broke("a")), ("end Count", None)]);
}

#[test]
fn without_a_budget_no_stream_is_continued() {
    let sight = TestStream::new(&["a", "b"]).with_budget(0);
    tell(sight, &[("relay", broke("a")), ("end Budget", None)]);
}

#[test]
fn a_stream_that_the_rules_end_asks_for_no_retry() {
    let mut sight = TestStream::new(&["a", "b"]);
    sight.rules.count_max = 0;
    for rest in [StreamRest::LastEvents, StreamRest::Unfit("tools"), StreamRest::Text] {
        let mut story = StreamStory::of(sight.clone());
        let broke = broke_with(Some(StreamTarget::Replica("a".into())), rest);
        check(&mut story, &[("relay", broke)]);
        assert!(matches!(story.step(), StreamStep::End(_)), "{rest:?}");
    }
}

#[test]
fn a_stream_that_lacks_only_its_last_events_is_completed_at_no_cost() {
    let rest = |rest| broke_with(Some(StreamTarget::Replica("a".into())), rest);
    let sight = TestStream::new(&["a", "b"]);
    let last = [("relay", rest(StreamRest::LastEvents)), ("end Complete", None)];
    assert_eq!(tell(sight.clone(), &last), 9);
    let unfit = [("relay", rest(StreamRest::Unfit("tools"))), ("end Unfit(\"tools\")", None)];
    assert_eq!(tell(sight.clone(), &unfit), 9);
    // Both hold where no continuation is left either.
    let mut sight = sight.with_budget(0);
    sight.rules.count_max = 0;
    tell(sight.clone(), &last);
    tell(sight, &unfit);
}

#[test]
fn a_chat_that_was_begun_goes_only_to_engines_that_can_continue_it() {
    let sight = || TestStream::new(&["a", "b", "c"]).with_unable(&["b"]).with_regions(&["far"]);
    // Other regions may have engines of that kind.
    tell(sight(), &[("relay", broke("a")), ("try but a b far", None)]);
    let whole = broke_with(Some(StreamTarget::Replica("a".into())), StreamRest::Whole);
    tell(sight(), &[("relay", whole), ("try but a", None)]);
    let mut text = sight();
    text.rules.needs_engine = false;
    tell(text, &[("relay", broke("a")), ("try but a", None)]);
    let none_left = TestStream::new(&["a", "b"]).with_unable(&["b"]).with_regions(&["far"]);
    tell(none_left, &[("relay", broke("a")), ("end NoTargetLeft", None)]);
}

#[test]
fn replicas_of_other_models_count_for_nothing() {
    let mut sight = TestStream::new(&["a", "b"]);
    sight.replicas[1].serves_model = false;
    tell(sight.clone(), &[("relay", broke("a")), ("end NoTargetLeft", None)]);
    // Such an engine says nothing about those of other regions.
    let mut sight = sight.with_unable(&["b"]).with_regions(&["far"]);
    sight.replicas[1].serves_model = false;
    tell(sight, &[("relay", broke("a")), ("try but a b", None)]);
}

#[test]
fn a_region_that_broke_the_stream_off_is_asked_after_all_other_places() {
    let sight = || TestStream::new(&["a"]).with_regions(&["far", "near"]);
    tell(
        sight(),
        &[
            ("relay", lost("far")),
            ("try but far", CONTINUED),
            ("relay", broke("a")),
            ("try but a far", CONTINUED),
            ("relay", None),
        ],
    );
    tell(sight(), &[("relay", broke("a")), ("try but a", CONTINUED), ("relay", None)]);
    let nameless = broke_with(None, StreamRest::Text);
    tell(sight(), &[("relay", nameless), ("try", None)]);
    // None of the others had a target: the next round prefers none.
    let rounds = [
        ("relay", lost("far")),
        ("try but far", Some(NOT_NOW)),
        ("pause 100", PAUSED),
        ("try", CONTINUED),
        ("relay", lost("near")),
        ("try but far near", None),
    ];
    tell(sight(), &rounds);
}

#[test]
fn a_region_that_is_the_only_place_is_asked_again_at_once() {
    let edge = || TestStream::new(&[]).with_regions(&["far"]);
    tell(edge(), &[("relay", lost("far")), ("try", CONTINUED), ("relay", None)]);
    // The same where the own replicas are the last choice, too.
    let sight = || TestStream::new(&["a"]).with_regions(&["far"]);
    tell(
        sight(),
        &[
            ("relay", broke("a")),
            ("try but a", CONTINUED),
            ("relay", lost("far")),
            ("try but a", CONTINUED),
            ("relay", None),
        ],
    );
    let alone = TestStream::new(&["a"]).with_regions(&["far"]).with_unable(&["a"]);
    tell(alone, &[("relay", lost("far")), ("end NoTargetLeft", None)]);
}

#[test]
fn a_try_that_fails_after_its_time_costs_no_retry() {
    let mut sight = TestStream::new(&["a", "b"]).with_budget(1);
    sight.deadline = Deadline::after(*START, ms(50));
    let mut story = StreamStory::of(sight);
    check(&mut story, &[("relay", broke("a")), ("try but a", None)]);
    for event in [FAILED, StreamEvent::OtherReply(Some("b".into()))] {
        let mut story = story.clone();
        story.now += ms(50);
        story.tell(event);
        assert_eq!(story.step(), StreamStep::End(StreamEnd::Late));
    }
}

#[test]
fn replicas_that_broke_off_earlier_are_asked_when_no_other_is_left() {
    let steps = [("relay", broke("a")), ("try but a", CONTINUED), ("relay", broke("b"))];
    let back = [("try but b", Some(NOT_NOW)), ("pause 100", PAUSED), ("try but b", CONTINUED)];
    tell(TestStream::new(&["a", "b"]), &[&steps[..], &back].concat());
    tell(TestStream::new(&["a"]), &[("relay", broke("a")), ("end NoTargetLeft", None)]);
    // The last one is not asked, though it is the only one.
    let mut story = StreamStory::of(TestStream::new(&["a", "b"]));
    check(&mut story, &steps);
    story.sight.replicas.remove(0);
    check(&mut story, &[("end NoTargetLeft", None)]);
}

#[test]
fn a_replica_is_known_by_its_name_in_a_new_view() {
    let mut story = StreamStory::of(TestStream::new(&["a", "b", "c"]));
    check(&mut story, &[("relay", broke("b")), ("try but b", other("c"))]);
    story.sight.replicas.reverse();
    check(&mut story, &[("try but c b", None)]);
}

#[test]
fn where_no_place_is_open_now_it_looks_again_while_the_stream_may_be_silent() {
    let mut sight = TestStream::new(&["a", "b"]).with_budget(1);
    sight.silence_max = ms(250);
    let now = Some(NOT_NOW);
    let left = tell(
        sight.clone(),
        &[
            ("relay", broke("a")),
            ("try but a", now.clone()),
            ("pause 100", PAUSED),
            ("try but a", Some(SHED)),
            ("pause 100", PAUSED),
            ("try but a", now.clone()),
            ("pause 50", PAUSED),
            ("end Late", None),
        ],
    );
    assert_eq!(left, 0, "only the continuation itself is a retry");
    // A deadline that comes sooner ends the search sooner.
    sight.deadline = Deadline::after(*START, ms(50));
    let steps =
        [("relay", broke("a")), ("try but a", now), ("pause 50", PAUSED), ("end Late", None)];
    tell(sight, &steps);
}

#[test]
fn a_search_whose_time_is_over_ends() {
    let sight = TestStream::new(&["a", "b"]);
    let over = Some(StreamEvent::TimeOver);
    tell(sight.clone(), &[("relay", broke("a")), ("try but a", over), ("end Late", None)]);
    let mut story = StreamStory::of(sight);
    check(&mut story, &[("relay", broke("a")), ("try but a", other("b"))]);
    story.now += ms(30_000);
    check(&mut story, &[("end Late", None)]);
}

#[test]
fn each_search_has_time_of_its_own() {
    let mut story = StreamStory::of(TestStream::new(&["a", "b", "c"]));
    check(&mut story, &[("relay", broke("a")), ("try but a", CONTINUED)]);
    story.now += ms(40_000);
    check(&mut story, &[("relay", broke("b")), ("try but a b", Some(NOT_NOW))]);
    assert_eq!(short(&story.sight.clone(), &story.next()), "pause 100");
}

#[test]
fn a_route_that_is_gone_ends_the_search() {
    let gone = Some(StreamEvent::NoRoute);
    let steps = [("relay", broke("a")), ("try but a", gone), ("end NoTargetLeft", None)];
    tell(TestStream::new(&["a", "b"]), &steps);
}

#[test]
fn rounds_that_fail_are_few_and_each_takes_from_the_budget() {
    let failed = Some(FAILED);
    let round = [("try but a", failed.clone()), ("pause 100", PAUSED)];
    let steps = [&[("relay", broke("a"))][..], &round, &round, &round].concat();
    let last = [("try but a", failed), ("end Failed", None)];
    let sight = TestStream::new(&["a", "b"]);
    assert_eq!(tell(sight.clone(), &[&steps[..], &last].concat()), 5);
    let first = [&steps[..1], &last].concat();
    assert_eq!(tell(sight.with_budget(1), &first), 0);
}

#[test]
fn another_reply_is_followed_by_another_try_in_the_same_round() {
    let sight = TestStream::new(&["a", "b", "c", "d", "e"]);
    let steps = [
        ("relay", broke("a")),
        ("try but a", other("b")),
        ("try but a b", other("c")),
        ("try but a b c", other("d")),
    ];
    let next_round = [
        ("pause 100", PAUSED),
        ("try but a", other("b")),
        ("try but a b", other("c")),
        ("try but a b c", None),
    ];
    let left = tell(sight.clone(), &[&steps[..], &next_round].concat());
    assert_eq!(left, 3, "for the break, two more tries, the next round, and two more tries");
    let left = tell(sight.clone().with_budget(2), &[&steps[..3], &[("end Failed", None)]].concat());
    assert_eq!(left, 0);
    // Another region has chosen among its replicas itself.
    let far = Some(StreamEvent::OtherReply(None));
    tell(sight, &[("relay", broke("a")), ("try but a", far), ("pause 100", None)]);
}

#[test]
fn the_budget_is_asked_once_for_each_search_each_further_try_and_each_further_round() {
    use StreamRetry::{Round, Search, Try};
    let steps = [
        ("relay", broke("a")),
        ("try but a", other("b")),
        ("try but a b", Some(FAILED)),
        ("pause 100", PAUSED),
        ("try but a", CONTINUED),
        ("relay", None),
    ];
    let mut story = StreamStory::of(TestStream::new(&["a", "b", "c"]));
    check(&mut story, &steps);
    assert_eq!(story.asked, [(Search, true), (Try, true), (Round, true)]);
    // A try or a round that is refused ends the search, and nothing more is asked.
    for (allowed, last) in [(0, Search), (1, Try), (2, Round)] {
        let mut story = StreamStory::of(TestStream::new(&["a", "b", "c"]).with_budget(allowed));
        check(&mut story, &steps[..=allowed as usize]);
        let end = if last == Search { StreamEnd::Budget } else { StreamEnd::Failed };
        assert_eq!(story.next(), StreamStep::End(end));
        assert_eq!(story.asked.last(), Some(&(last, false)));
        assert_eq!(story.asked.len(), allowed as usize + 1);
    }
}

#[test]
fn only_a_lack_of_places_is_waited_for() {
    let is_for_now = |ending| {
        let sight = TestStream::new(&["a", "b"]).with_budget(1);
        let mut story = StreamStory::of(sight);
        check(&mut story, &[("relay", broke("a")), ("try but a", None)]);
        story.tell(StreamEvent::NoReply(ending));
        short(&story.sight.clone(), &story.next()).starts_with("pause")
    };
    let reason = ShedReason::PushedOut;
    assert!(is_for_now(Ending::SentAway { reason, retry_after: ms(1) }));
    assert!(is_for_now(Ending::NoSlotInTime(reason)));
    assert!(is_for_now(Ending::TooLate { reason, late_ms: 1.0 }));
    let failures = [
        Ending::HeldReply,
        Ending::LastFailure,
        Ending::ClientFault,
        Ending::OnlyRegionGone,
        Ending::OutsideResidency(ResidencyDenial::Withdrawn),
    ];
    for ending in failures {
        assert!(!is_for_now(ending), "{ending:?}");
    }
}

#[test]
fn ends_say_if_a_place_was_sought() {
    let sought = [StreamEnd::NoTargetLeft, StreamEnd::Late, StreamEnd::Failed];
    assert!(sought.iter().all(|end| end.is_after_search()));
    let at_once = [
        StreamEnd::Complete,
        StreamEnd::Unfit("tools"),
        StreamEnd::Count,
        StreamEnd::Deaths,
        StreamEnd::Budget,
    ];
    assert!(!at_once.iter().any(|end| end.is_after_search()));
}

#[test]
fn a_request_that_two_engines_died_of_is_not_tried_again() {
    let steps = [("relay", died("a")), ("try but a", CONTINUED), ("relay", died("b"))];
    let end = [("end Deaths", None)];
    let left = tell(TestStream::new(&["a", "b", "c"]), &[&steps[..], &end].concat());
    assert_eq!(left, 8, "no retry for the second death");
    // One engine had died before the stream began.
    let mut sight = TestStream::new(&["a", "b"]);
    sight.rules.deaths = 1;
    tell(sight, &[("relay", died("a")), ("end Deaths", None)]);
    // Or another one dies while the stream is sought a target.
    let in_search = Some(StreamEvent::NoReply(Ending::EnginesDied));
    tell(
        TestStream::new(&["a", "b"]),
        &[("relay", died("a")), ("try but a", in_search), ("end Deaths", None)],
    );
    // Silence, drains and regions kill nothing.
    let cut = broke("a");
    let more = [("relay", cut), ("try but a", CONTINUED), ("relay", died("b"))];
    tell(TestStream::new(&["a", "b", "c"]), &[&more[..], &[("try but a b", None)]].concat());
}

#[test]
fn streams_of_a_lost_region_and_of_a_drain_need_no_budget() {
    for cause in [BreakCause::Lost, BreakCause::Drained] {
        let mut sight = TestStream::new(&["a"]).with_regions(&["far"]).with_budget(0);
        sight.rules.count_max = 0;
        let target = Some(StreamTarget::Region("far".into()));
        let gone = Some(of_cause(cause, target, StreamRest::Text));
        let steps = [("relay", gone), ("try but far", CONTINUED), ("relay", None)];
        assert_eq!(tell(sight, &steps), 0, "{cause:?}");
    }
    let sight = TestStream::new(&["a"]).with_regions(&["far"]).with_budget(0);
    let gone = lost("far").map(|_| {
        of_cause(BreakCause::Lost, Some(StreamTarget::Region("far".into())), StreamRest::Text)
    });
    let rounds = [
        ("relay", gone),
        ("try but far", Some(FAILED)),
        ("pause 100", PAUSED),
        ("try", CONTINUED),
        ("relay", None),
    ];
    tell(sight, &rounds);
}

#[test]
fn a_stream_that_no_place_has_room_for_stays_where_it_drains() {
    let target = || Some(StreamTarget::Replica("a".into()));
    let drained = || Some(of_cause(BreakCause::Drained, target(), StreamRest::Text));
    let mut story = StreamStory::of(TestStream::new(&["a", "b"]));
    check(&mut story, &[("relay", drained()), ("try but a", Some(NOT_NOW)), ("end Late", None)]);
    story.stream.stay();
    check(&mut story, &[("relay", drained()), ("try but a", CONTINUED), ("relay", None)]);
    // It is held up for a moment at most.
    let mut story = StreamStory::of(TestStream::new(&["a", "b"]));
    check(&mut story, &[("relay", drained())]);
    let StreamStep::Try { until, .. } = story.next() else { panic!("a try") };
    assert_eq!(until, *START + ms(300));
}

#[test]
fn each_cause_has_its_name() {
    let causes = [
        BreakCause::Cut,
        BreakCause::Stalled,
        BreakCause::Error,
        BreakCause::Aborted,
        BreakCause::Lost,
        BreakCause::Drained,
    ];
    let names = causes.map(BreakCause::name);
    assert_eq!(names, ["cut", "stalled", "error", "aborted", "lost", "drained"]);
}
