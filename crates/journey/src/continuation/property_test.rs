//! Named invariants of streams in any surroundings and with any results.

use proptest::prelude::*;
use spillway_types::{Deadline, RegionName, ReplicaName};

use super::test_stream::{FAILED, NOT_NOW, START, StreamStory, TestStream, TestStreamReplica, ms};
use super::{
    ContinuationRules, StreamBreak, StreamEnd, StreamEvent, StreamPlace, StreamReplica, StreamRest,
    StreamSight, StreamStep, Unasked,
};

const NAMES: [&str; 5] = ["a", "b", "c", "d", "e"];
/// Steps after which a stream has to be over: those that its bounds allow.
const STEPS_MAX: usize = 4_000;

/// Observations of a stream.
#[derive(Debug, Default)]
struct StreamSeen {
    broken: Vec<ReplicaName>,
    lost: Vec<RegionName>,
    /// Replicas that were asked in this round.
    tried: Vec<ReplicaName>,
    /// Rounds of the search that are over.
    rounds: u32,
    /// Rounds of the search that ended with a failure.
    failed_rounds: u32,
    is_begun: bool,
    continuations: u32,
    /// Retries that were expected to be taken from the budget.
    retries: u32,
    /// End of the search as the request's rules have it.
    until_ms: u64,
}

fn any_stream() -> impl Strategy<Value = TestStream> {
    let replica = (any::<bool>(), any::<bool>());
    let rules = (0..4_u32, 1..4_u32, any::<bool>());
    (
        prop::collection::vec(replica, 0..=NAMES.len()),
        0..3_usize,
        rules,
        (0..2_000_u64, 0..4_000_u64),
        0..12_u32,
    )
        .prop_map(|(replicas, regions, rules, (silence, deadline), budget)| {
            let mut sight = TestStream::new(&[]).with_budget(budget);
            sight.replicas = replicas.iter().zip(NAMES).map(any_replica).collect();
            sight.regions = ["far", "near"].map(RegionName::from)[..regions].to_vec();
            sight.rules =
                ContinuationRules { count_max: rules.0, tries_max: rules.1, needs_engine: rules.2 };
            sight.silence_max = ms(silence);
            sight.deadline = Deadline::after(*START, ms(deadline));
            sight
        })
}

fn any_replica((facts, name): (&(bool, bool), &str)) -> TestStreamReplica {
    TestStreamReplica { name: name.into(), serves_model: facts.0, continues_chats: facts.1 }
}

/// Drives a stream by chance to its end, and checks each step.
fn run(story: &mut StreamStory, rng: &mut fastrand::Rng) -> (StreamSeen, StreamEnd) {
    let mut seen = StreamSeen::default();
    for _ in 0..STEPS_MAX {
        match story.next() {
            StreamStep::Relay => break_stream(story, rng, &mut seen),
            StreamStep::Try { unasked, until } => {
                assert!(story.now < until, "a try begins although its time is over");
                assert_eq!(until, *START + ms(seen.until_ms), "as long as a stream may be silent");
                check_unasked(&story.sight, &unasked, &seen);
                try_once(story, &unasked, rng, &mut seen);
            }
            StreamStep::Pause(pause) => {
                story.now += pause;
                seen.tried.clear();
                seen.rounds += 1;
                story.tell(StreamEvent::Paused);
            }
            StreamStep::End(end) => return (seen, end),
        }
        if rng.u8(..8) == 0 {
            // Another view: some replicas are gone, and others have their numbers.
            rng.shuffle(&mut story.sight.replicas);
        }
    }
    panic!("no end: {seen:?}")
}

/// Lets a place that could have served the stream break it off.
fn break_stream(story: &mut StreamStory, rng: &mut fastrand::Rng, seen: &mut StreamSeen) {
    let place = seen.broken.last().cloned().map(StreamPlace::Replica);
    let fresh = rng.choice(&story.sight.replicas).map(|it| StreamPlace::Replica(it.name.clone()));
    let region = rng.choice(&story.sight.regions).cloned().map(StreamPlace::Region);
    let place = [place, fresh.clone(), fresh, region][rng.usize(..4)].clone();
    let rest = match rng.u8(..16) {
        0 => StreamRest::LastEvents,
        1 => StreamRest::Unfit("tools"),
        2..=5 => StreamRest::Whole,
        _ => StreamRest::Text,
    };
    let budget = story.sight.budget.get();
    story.tell(StreamEvent::Broke(StreamBreak { place: place.clone(), rest }));
    let is_sought = !matches!(
        story.next(),
        StreamStep::End(
            StreamEnd::Complete | StreamEnd::Unfit(_) | StreamEnd::Count | StreamEnd::Budget
        )
    );
    assert_eq!(budget - story.sight.budget.get(), u32::from(is_sought), "a search is a retry");
    if !is_sought {
        return;
    }
    assert!(matches!(rest, StreamRest::Whole | StreamRest::Text), "{rest:?} is not continued");
    seen.retries += 1;
    seen.continuations += 1;
    seen.is_begun = rest == StreamRest::Text;
    seen.tried.clear();
    (seen.rounds, seen.failed_rounds) = (0, 0);
    let passed = story.now.duration_since(*START);
    let left = story.sight.deadline.remaining(story.now).min(story.sight.silence_max);
    seen.until_ms = u64::try_from((passed + left).as_millis()).unwrap();
    match place {
        Some(StreamPlace::Replica(name)) => seen.broken.push(name),
        Some(StreamPlace::Region(name)) => seen.lost.push(name),
        None => {}
    }
}

/// Checks that a try leaves out all places that it has to.
fn check_unasked(sight: &TestStream, unasked: &Unasked, seen: &StreamSeen) {
    let is_left_out = |name: &ReplicaName| {
        sight.replicas().filter(|it| it.name == name).all(|it| unasked.replicas.contains(&it.slot))
    };
    if let Some(last) = seen.broken.last() {
        assert!(is_left_out(last), "goes where it has just broken off");
    }
    assert!(seen.tried.iter().all(is_left_out), "asks a replica twice in a round");
    let needs_engine = seen.is_begun && sight.rules.needs_engine;
    let is_able = |it: &TestStreamReplica| !needs_engine || it.continues_chats;
    assert!(
        sight.replicas.iter().all(|it| is_able(it) || is_left_out(&it.name)),
        "asks an engine that cannot continue a chat"
    );
    let is_any_unable = sight.replicas.iter().any(|it| it.serves_model && !is_able(it));
    if is_any_unable {
        assert!(sight.regions.iter().all(|name| unasked.regions.contains(name)), "asks a region");
    }
    let is_fresh =
        |it: &TestStreamReplica| it.serves_model && is_able(it) && !seen.broken.contains(&it.name);
    let is_asked = |name: &RegionName| !unasked.regions.contains(name);
    let is_fresh_region = |name: &RegionName| !is_any_unable && !seen.lost.contains(name);
    if sight.replicas.iter().any(is_fresh) || sight.regions.iter().any(is_fresh_region) {
        assert!(seen.broken.iter().all(is_left_out), "goes back although another place is left");
        let is_first = seen.rounds == 0;
        assert!(!is_first || !seen.lost.iter().any(is_asked), "asks a lost region first");
    }
    // A place is left that serves the model and may continue the stream.
    let is_place = |it: &TestStreamReplica| {
        it.serves_model && (!is_left_out(&it.name) || seen.tried.contains(&it.name))
    };
    assert!(sight.replicas.iter().any(is_place) || sight.regions.iter().any(is_asked), "in vain");
    assert!(sight.regions.iter().all(|it| is_asked(it) || is_any_unable || seen.lost.contains(it)));
    // No place is left out without a reason.
    let has_reason = |it: &TestStreamReplica| {
        !is_able(it) || seen.broken.contains(&it.name) || seen.tried.contains(&it.name)
    };
    assert!(sight.replicas.iter().all(|it| has_reason(it) || !is_left_out(&it.name)));
}

/// Lets a try succeed or fail.
fn try_once(
    story: &mut StreamStory,
    unasked: &Unasked,
    rng: &mut fastrand::Rng,
    seen: &mut StreamSeen,
) {
    let is_asked = |it: &StreamReplica<'_>| !unasked.replicas.contains(&it.slot);
    let replica = story.sight.replicas().find(is_asked).map(|it| it.name.clone());
    let event = match rng.u8(..12) {
        0 => StreamEvent::TimeOver,
        1 => StreamEvent::NoRoute,
        2..=4 => StreamEvent::Continued,
        5..=7 => StreamEvent::OtherReply(replica.clone()),
        8..=9 => FAILED,
        _ => NOT_NOW,
    };
    let budget = story.sight.budget.get();
    let is_failure = matches!(event, StreamEvent::OtherReply(_)) || event == FAILED;
    let is_retried = story.tell(event).is_some();
    let paid = budget - story.sight.budget.get();
    let is_over = matches!(story.next(), StreamStep::End(_));
    assert_eq!(paid, u32::from(is_failure && !is_over), "a try that failed and is repeated");
    seen.retries += paid;
    seen.failed_rounds += u32::from(paid > 0 && !is_retried);
    assert!(seen.failed_rounds <= 3, "more rounds than allowed");
    if is_retried {
        seen.tried.extend(replica);
    }
    story.now += ms(rng.u64(0..60));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn every_stream_keeps_its_invariants(sight in any_stream(), seed in any::<u64>()) {
        let (rules, budget) = (sight.rules, sight.budget.get());
        let mut story = StreamStory::of(sight);
        let mut rng = fastrand::Rng::with_seed(seed);
        let (seen, end) = run(&mut story, &mut rng);

        // An end says if a place was sought.
        prop_assert!(!end.is_after_search() || seen.continuations > 0);
        // An end is the end.
        prop_assert_eq!(story.next(), StreamStep::End(end));
        // Never more continuations than allowed, nor more retries than the budget had.
        prop_assert!(seen.continuations <= rules.count_max);
        prop_assert_eq!(seen.retries, budget - story.sight.budget.get());
        // Every end has its reason.
        match end {
            StreamEnd::Count => prop_assert_eq!(seen.continuations, rules.count_max),
            StreamEnd::Budget => prop_assert_eq!(story.sight.budget.get(), 0),
            StreamEnd::NoPlaceLeft | StreamEnd::Late | StreamEnd::Failed => {
                prop_assert!(seen.continuations > 0);
            }
            StreamEnd::Complete | StreamEnd::Unfit(_) => {}
        }
    }
}
