//! Comparison of regions: way, load, caches and conversations.

use super::super::test_sight::{Story, TestRegion, TestSight, short};
use crate::{Conversation, Notes};

/// Region of a row: round trip in milliseconds, requests that run of ten, blocks in its caches.
type Row = (f32, f32, u32);

/// A full region before two others, with a policy that reads caches.
fn before([b, c]: [Row; 2]) -> TestSight {
    let mut sight = TestSight::new(1).full();
    sight.rules.reads_caches = true;
    let region = |name: &str, (rtt_ms, running, hot): Row| TestRegion {
        rtt_ms,
        running,
        hot,
        ..TestRegion::free(name)
    };
    sight.regions = vec![region("b", b), region("c", c)];
    sight
}

#[track_caller]
fn check_first(why: &str, sight: TestSight, expected: &str) {
    assert_eq!(short(&Story::of(sight).next()), expected, "{why}");
}

#[test]
fn a_full_region_passes_a_request_to_where_it_begins_soonest() {
    for (why, regions, expected) in [
        ("the nearest", [(20.0, 0.0, 0), (80.0, 0.0, 0)], "forward b"),
        ("the nearest, in any order", [(80.0, 0.0, 0), (20.0, 0.0, 0)], "forward c"),
        ("a cache is worth some way", [(20.0, 0.0, 0), (80.0, 0.0, 9)], "forward c"),
        ("more of it beats less", [(20.0, 0.0, 3), (80.0, 0.0, 9)], "forward c"),
        ("equal caches leave the way", [(20.0, 0.0, 9), (80.0, 0.0, 9)], "forward b"),
        ("a cache too far away", [(20.0, 0.0, 0), (1_500.0, 0.0, 9)], "forward b"),
        ("the one with room", [(20.0, 10.0, 0), (80.0, 0.0, 0)], "forward c"),
        ("a cache without room", [(20.0, 10.0, 9), (80.0, 0.0, 0)], "forward c"),
        ("none has room", [(20.0, 10.0, 9), (80.0, 10.0, 9)], "wait"),
    ] {
        check_first(why, before(regions), expected);
    }
}

#[test]
fn a_region_that_is_no_busier_counts_with_its_best_cache() {
    let with = |cached_longest: u32, running: f32| {
        let mut sight = before([(20.0, 4.0, 9), (80.0, 5.0, 0)]);
        (sight.first_token_ms, sight.prefill_ms) = (Some(20.0), 1.0);
        sight.replicas[0].in_flight = 0;
        (sight.cached_longest, sight.running, sight.reported_replicas) =
            (cached_longest, running, 1);
        sight.regroup();
        sight
    };
    // The chosen replica reads all of the prompt. Another one here has most of it, as one in b.
    check_first("as busy", with(9, 4.0), "ask 0");
    check_first("a little busier", with(9, 4.4), "ask 0");
    check_first("much busier: b relieves this region", with(9, 5.6), "forward b");
    check_first("nothing is cached here", with(0, 4.0), "forward b");
}

#[test]
fn a_comparison_notes_whether_caches_changed_where_the_request_goes() {
    for (why, regions, changed) in [
        ("nothing is cached", [(20.0, 0.0, 0), (80.0, 0.0, 0)], 0),
        ("the nearest has most", [(20.0, 0.0, 9), (80.0, 0.0, 0)], 0),
        ("a cache is worth some way", [(20.0, 0.0, 0), (80.0, 0.0, 9)], 1),
    ] {
        let mut story = Story::of(before(regions));
        story.next();
        let notes = story.journey.take_notes();
        assert_eq!((notes.cache_comparisons, notes.cache_changes), (1, changed), "{why}");
        assert!(notes.compared.is_some(), "{why}");
        story.next();
        assert_eq!(story.journey.take_notes(), Notes::default(), "{why}: once");
    }
}

#[test]
fn a_conversation_is_worth_a_way_and_no_queue() {
    let row = |rtt_ms, running| (rtt_ms, running, 0);
    for (why, regions, expected) in [
        ("some way", [row(20.0, 0.0), row(80.0, 0.0)], "forward c"),
        ("not any way", [row(20.0, 0.0), row(1_500.0, 0.0)], "forward b"),
        ("no queue", [row(20.0, 0.0), row(80.0, 10.0)], "forward b"),
    ] {
        let mut sight = before(regions);
        sight.conversation = Some(Conversation { region: "c".into(), blocks: 5 });
        check_first(why, sight, expected);
    }
}

#[test]
fn a_conversation_with_a_region_that_may_not_serve_counts_for_nothing() {
    let mut sight = before([(20.0, 0.0, 0), (80.0, 0.0, 9)]);
    sight.conversation = Some(Conversation { region: "c".into(), blocks: 9 });
    sight.regions[1].may_serve = false;
    check_first("by its rules", sight, "forward b");
    let mut sight = before([(20.0, 0.0, 0), (80.0, 0.0, 9)]);
    sight.conversation = Some(Conversation { region: "gone".into(), blocks: 9 });
    check_first("an unknown region", sight, "forward c");
}
