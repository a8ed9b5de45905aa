//! Choice of a region, and regions that may not serve a request.

use std::time::Instant;

use spillway_route::ShedReason;
use spillway_types::{Deadline, ReplicaSlot};

use super::super::test_sight::{START, Story, TestSight, check, ms, short};
use super::{NOT_CONNECTED, REFUSED, region_failed, tell};
use crate::{
    Conversation, Ending, Event, Journey, Notes, RegionFailure, ResidencyDenial, RetrySafety,
    Unasked,
};

pub(super) fn abroad() -> TestSight {
    let mut sight = TestSight::new(1).full().with_regions(&["b", "c"]);
    sight.wait_ms = Some(5_000);
    sight.ahead = 3;
    sight.regions[1].rtt_ms = 60.0;
    sight
}

#[test]
fn a_busy_region_passes_requests_on_and_asks_the_next_one_after_a_refusal() {
    tell(
        abroad(),
        &[
            ("forward b", Some(REFUSED)),
            ("forward c", Some(Event::RegionReplied)),
            ("end Reply", None),
        ],
    );
}

#[test]
fn a_node_without_replicas_spreads_a_burst_over_equal_regions_before_they_report() {
    let mut sent = [0, 0];
    for _ in 0..14 {
        let mut sight = TestSight::new(0).with_regions(&["b", "c"]);
        for (region, sent) in sight.regions.iter_mut().zip(sent) {
            (region.capacity, region.sent) = (100.0, sent);
        }
        // A little nearer: that alone would take all of them.
        sight.regions[1].rtt_ms = sight.regions[0].rtt_ms + 1.0;
        let mut story = Story::of(sight);
        let region = usize::from(short(&story.next()) == "forward c");
        sent[region] += 1;
    }
    assert_eq!(sent, [7, 7]);
}

#[test]
fn a_region_with_room_asks_no_other() {
    let sight = TestSight::new(1).with_regions(&["b"]);
    tell(sight, &[("ask 0", None)]);
}

#[test]
fn refusals_are_no_retries_and_a_broken_link_is_an_attempt() {
    let story = tell(
        abroad(),
        &[("forward b", Some(NOT_CONNECTED)), ("forward c", Some(NOT_CONNECTED)), ("wait", None)],
    );
    assert_eq!((story.journey.attempts(), story.retries), (0, 10));
    let broken = |safety| region_failed(RegionFailure::Broken { safety });
    let story =
        tell(abroad(), &[("forward b", Some(broken(RetrySafety::Unsent))), ("forward c", None)]);
    assert_eq!((story.journey.attempts(), story.retries), (1, 9));
    tell(abroad(), &[("forward b", Some(broken(RetrySafety::Never))), ("end LastFailure", None)]);
}

#[test]
fn a_request_of_a_lost_region_goes_elsewhere_without_the_budget() {
    let lost = || Some(region_failed(RegionFailure::Lost));
    let mut story = Story::of(abroad());
    story.retries = 0;
    check(&mut story, &[("forward b", lost()), ("forward c", None)]);
    assert_eq!(story.journey.attempts(), 1);
}

#[test]
fn no_more_regions_are_asked_than_one_request_may() {
    let mut sight = abroad();
    sight.asked_max = 1;
    tell(sight, &[("forward b", Some(REFUSED)), ("wait", None)]);
}

#[test]
fn a_region_that_is_left_out_takes_no_other_region_s_turn() {
    let without_b = |mut sight: TestSight, asked_max| {
        sight.asked_max = asked_max;
        let mut story = Story::of(sight);
        let unasked = Unasked { replicas: Vec::new(), regions: vec!["b".into()] };
        story.journey = Journey::new(*START, 3).without(unasked);
        story
    };
    check(
        &mut without_b(abroad(), 1),
        &[("forward c", Some(Event::RegionReplied)), ("end Reply", None)],
    );
    let steps = [("forward c", Some(REFUSED)), ("wait", Some(Event::Paused))];
    let mut story = without_b(abroad(), 2);
    check(&mut story, &steps);
    story.now += ms(300);
    check(&mut story, &[("wait", Some(Event::Paused)), ("forward c", None)]);
    // Where no other region is left, a node without replicas has nothing to wait for.
    let edge = TestSight::new(0).with_regions(&["b"]);
    check(&mut without_b(edge, 2), &[("shed nobody_in_reach", None)]);
}

#[test]
fn nodes_that_are_leaving_do_not_count_against_their_region_three_times() {
    let leaving = Some(region_failed(RegionFailure::Leaving));
    tell(
        abroad(),
        &[
            ("forward b", leaving),
            ("forward b", leaving),
            ("forward b", leaving),
            ("forward b", leaving),
            ("forward c", None),
        ],
    );
}

#[test]
fn a_guest_is_never_forwarded() {
    let mut sight = abroad();
    sight.inquiry.hop = 1;
    tell(sight, &[("refused all_busy", None)]);
}

#[test]
fn a_guest_that_would_come_too_late_is_turned_away() {
    let mut sight = TestSight::new(1).with_regions(&["b"]);
    sight.inquiry.hop = 1;
    sight.inquiry.deadline = Deadline::after(*START, ms(100));
    sight.first_token_ms = Some(5_000.0);
    sight.regroup();
    tell(sight, &[("too late late", None)]);
}

#[test]
fn an_evacuated_region_sends_requests_elsewhere_and_serves_before_no_region_does() {
    let mut sight = TestSight::new(1).with_regions(&["b"]);
    sight.is_evacuated = true;
    tell(sight, &[("forward b", Some(NOT_CONNECTED)), ("ask 0", None)]);
}

#[test]
fn a_session_goes_home_to_another_region() {
    let mut sight = TestSight::new(1).with_regions(&["b", "c"]);
    sight.session_region = Some("c".into());
    tell(sight, &[("forward c", Some(NOT_CONNECTED)), ("ask 0", None)]);
}

#[test]
fn what_only_one_region_can_serve_goes_there_or_nowhere() {
    let only = || {
        let mut sight = TestSight::new(1).with_regions(&["b", "c"]);
        sight.only_region = Some("c".into());
        sight
    };
    tell(only(), &[("forward c", Some(Event::RegionReplied)), ("end Reply", None)]);
    tell(only(), &[("forward c", Some(NOT_CONNECTED)), ("end OnlyRegionGone", None)]);
}

#[test]
fn a_region_that_may_not_serve_it_is_never_asked() {
    let mut sight = abroad();
    sight.regions[0].may_serve = false;
    tell(sight, &[("forward c", None)]);
}

#[test]
fn a_rule_that_changed_between_choice_and_step_holds() {
    let mut sight = abroad();
    sight.only_region = Some("b".into());
    sight.regions[0].may_serve = false;
    let mut story = tell(sight, &[("end OnlyRegionGone", None)]);
    assert_eq!(story.journey.take_notes(), Notes { regions_forbidden: 1, ..Notes::default() });
    assert_eq!(story.journey.take_notes(), Notes::default(), "once");
}

#[test]
fn a_region_that_says_it_may_not_serve_it_is_not_asked_again_after_a_wait() {
    let mut story = tell(
        abroad(),
        &[
            ("forward b", Some(region_failed(RegionFailure::OutsideResidency))),
            ("forward c", Some(REFUSED)),
            ("wait", None),
        ],
    );
    story.now += ms(300);
    check(&mut story, &[("wait", Some(Event::Paused)), ("forward c", None)]);
}

#[test]
fn what_this_region_may_not_serve_goes_elsewhere_or_is_refused() {
    let outside_residency = |denial| {
        let mut sight = TestSight::new(1).with_regions(&["b"]);
        sight.permission = Err(denial);
        sight
    };
    tell(
        outside_residency(ResidencyDenial::NeverGiven),
        &[("forward b", Some(REFUSED)), ("shed replica_busy", None)],
    );
    // The rules changed while the request was under way: regions are not compared again for that.
    tell(outside_residency(ResidencyDenial::Withdrawn), &[("outside residency Withdrawn", None)]);
}

#[test]
fn a_pinned_request_is_not_served_where_it_may_not_be() {
    let mut sight = TestSight::new(1);
    sight.pinned = Some(ReplicaSlot(0));
    sight.permission = Err(ResidencyDenial::NeverGiven);
    tell(sight, &[("outside residency NeverGiven", None)]);
}

// === caches and homes

/// A region with room, and another one that has most of the prompt in its caches.
fn cached_elsewhere() -> TestSight {
    let mut sight = TestSight::new(1).with_regions(&["b", "c"]);
    sight.rules.reads_caches = true;
    sight.regions[1].forwarded = 9;
    sight
}

#[test]
fn a_request_leaves_a_region_with_room_for_a_cache_that_is_worth_the_way() {
    tell(cached_elsewhere(), &[("forward c", None)]);
    let mut little = cached_elsewhere();
    little.regions[1].forwarded = 2;
    tell(little, &[("ask 0", None)]);
    let mut far = cached_elsewhere();
    far.regions[1].rtt_ms = 900.0;
    tell(far, &[("ask 0", None)]);
}

#[test]
fn caches_of_other_regions_count_only_where_the_policy_reads_them() {
    let mut sight = cached_elsewhere();
    sight.rules.reads_caches = false;
    tell(sight, &[("ask 0", None)]);
}

#[test]
fn an_idle_region_looks_at_no_other_unless_its_replica_is_predicted_to_be_slow() {
    let mut sight = cached_elsewhere();
    sight.is_roomy = true;
    tell(sight, &[("ask 0", None)]);
    let mut sight = cached_elsewhere();
    (sight.is_roomy, sight.is_quiet) = (true, false);
    tell(sight, &[("forward c", None)]);
}

#[test]
fn a_conversation_goes_on_in_the_region_that_served_it() {
    let mut sight = abroad();
    sight.regions[1].rtt_ms = 80.0;
    tell(sight, &[("forward b", None)]);
    let mut sight = abroad();
    sight.regions[1].rtt_ms = 80.0;
    sight.conversation = Some(Conversation { region: "c".into(), blocks: 5 });
    tell(sight, &[("forward c", Some(REFUSED)), ("forward b", None)]);
}

#[test]
fn where_no_region_may_be_asked_none_is() {
    let mut sight = abroad();
    sight.asked_max = 0;
    tell(sight, &[("wait", None)]);
    let mut sight = abroad();
    sight.regions.iter_mut().for_each(|region| region.is_reachable = false);
    tell(sight, &[("wait", None)]);
}

#[test]
fn a_region_without_replicas_passes_everything_on() {
    let sight = || TestSight::new(0).with_regions(&["b"]);
    tell(sight(), &[("forward b", Some(Event::RegionReplied)), ("end Reply", None)]);
    tell(sight(), &[("forward b", Some(REFUSED)), ("wait", None)]);
}

/// Returns the moment before which the client of a request that was shed should not retry.
fn not_before(story: &Story) -> Option<Instant> {
    match story.journey.ending() {
        Some(Ending::Shed { not_before, .. }) => not_before,
        ending => panic!("{ending:?}"),
    }
}

/// Refusal of a region that may have room after so many milliseconds.
fn refused_for(wait_ms: u64) -> Option<Event> {
    Some(region_failed(RegionFailure::Refused { wait: Some(ms(wait_ms)) }))
}

#[test]
fn a_client_of_a_region_without_replicas_is_told_when_another_has_room() {
    let told = |steps: &[(&str, Option<Event>)]| {
        let mut sight = TestSight::new(0).with_regions(&["b", "c"]);
        sight.regions[1].rtt_ms = 60.0;
        (sight.rules.queue_count_max, sight.has_room) = (0, false);
        let story = tell(sight, steps);
        not_before(&story).map(|until| until - *START)
    };
    let shed = ("shed replica_busy", None);
    let both = [("forward b", refused_for(9_000)), ("forward c", refused_for(4_000)), shed];
    assert_eq!(told(&both), Some(ms(4_000)));
    // The other may have room at any time.
    assert_eq!(
        told(&[("forward b", refused_for(9_000)), ("forward c", Some(REFUSED)), shed]),
        None
    );
    let outside = Some(region_failed(RegionFailure::OutsideResidency));
    let one = [("forward b", refused_for(9_000)), ("forward c", outside), shed];
    assert_eq!(told(&one), Some(ms(9_000)), "the other never will");
    // A region that cannot be reached may have room, but no request could be sent there.
    let mut sight = TestSight::new(0).with_regions(&["b", "c"]);
    sight.regions[1].is_reachable = false;
    (sight.rules.queue_count_max, sight.has_room) = (0, false);
    let story = tell(sight, &[("forward b", refused_for(9_000)), shed]);
    assert_eq!(not_before(&story), Some(*START + ms(9_000)));
    let long = [("forward b", refused_for(900_000)), ("forward c", refused_for(800_000)), shed];
    assert_eq!(told(&long), Some(ms(60_000)));
}

#[test]
fn a_wait_for_other_regions_that_was_in_vain_ends_with_their_last_word() {
    let mut sight = TestSight::new(0).with_regions(&["b"]);
    sight.rules.wait_ms_max = 1_000;
    let steps = [("forward b", refused_for(2_000)), ("wait", Some(Event::Paused))];
    let mut story = tell(sight, &steps);
    story.now += ms(300);
    check(&mut story, &[("wait", Some(Event::Paused)), ("forward b", refused_for(9_000))]);
    check(&mut story, &[("wait", None)]);
    story.now += ms(700);
    let last = [("wait", Some(Event::Paused)), ("forward b", refused_for(5_000))];
    check(&mut story, &last);
    check(&mut story, &[("shed waited", None)]);
    assert_eq!(not_before(&story), Some(*START + ms(6_000)));
}

#[test]
fn a_wait_that_the_queue_ends_is_told_the_last_word_of_other_regions_too() {
    let sent_away = |pause_ms, queue_ms| {
        let mut sight = TestSight::new(0).with_regions(&["b"]);
        sight.rules.wait_ms_max = 1_000;
        let mut story = tell(sight, &[("forward b", refused_for(pause_ms)), ("wait", None)]);
        let retry_after = ms(queue_ms);
        story.tell(Event::SentAway { reason: ShedReason::Waited, retry_after });
        match story.journey.ending() {
            Some(Ending::SentAway { retry_after, .. }) => retry_after,
            ending => panic!("{ending:?}"),
        }
    };
    assert_eq!(sent_away(9_000, 2_000), ms(9_000));
    assert_eq!(sent_away(1_000, 2_000), ms(2_000));
}

#[test]
fn pauses_of_other_regions_say_nothing_of_a_region_with_replicas() {
    let mut sight = abroad();
    (sight.rules.queue_count_max, sight.has_room) = (0, false);
    let both = [("forward b", refused_for(9_000)), ("forward c", refused_for(4_000))];
    let story = tell(sight, &[&both[..], &[("shed queue_full", None)]].concat());
    assert_eq!(not_before(&story), None);
}
