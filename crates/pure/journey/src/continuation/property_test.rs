//! Named invariants of streams in any surroundings and with any results.

use proptest::prelude::*;
use spillway_types::{Deadline, RegionName, ReplicaName};

use super::test_stream::{FAILED, NOT_NOW, START, StreamStory, TestStream, TestStreamReplica, ms};
use super::{
    BreakCause, ContinuationRules, StreamBreak, StreamEnd, StreamEvent, StreamReplica, StreamRest,
    StreamRetry, StreamSight, StreamStep, StreamTarget, Unasked,
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
    /// True if the search is a retry: its cause is a fault of the target.
    is_fault: bool,
    /// Searches after a fault.
    continuations: u32,
    /// Searches of any cause.
    searches: u32,
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
            sight.rules = ContinuationRules {
                count_max: rules.0,
                tries_max: rules.1,
                needs_engine: rules.2,
                deaths: 0,
            };
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
            StreamStep::TakeRetry(_) => unreachable!("retries are taken on the way"),
            StreamStep::End(end) => return (seen, end),
        }
        if rng.u8(..8) == 0 {
            // Another view: some replicas are gone, and others have their numbers.
            rng.shuffle(&mut story.sight.replicas);
        }
    }
    panic!("no end: {seen:?}")
}

/// Lets a target that could have served the stream break it off.
fn break_stream(story: &mut StreamStory, rng: &mut fastrand::Rng, seen: &mut StreamSeen) {
    let target = seen.broken.last().cloned().map(StreamTarget::Replica);
    let fresh = rng.choice(&story.sight.replicas).map(|it| StreamTarget::Replica(it.name.clone()));
    let region = rng.choice(&story.sight.regions).cloned().map(StreamTarget::Region);
    let target = [target, fresh.clone(), fresh, region][rng.usize(..4)].clone();
    let rest = match rng.u8(..16) {
        0 => StreamRest::LastEvents,
        1 => StreamRest::Unfit("tools"),
        2..=5 => StreamRest::Whole,
        _ => StreamRest::Text,
    };
    let budget = story.budget;
    let cause = [BreakCause::Cut, BreakCause::Stalled, BreakCause::Lost][rng.usize(..3)];
    let is_death = cause == BreakCause::Cut && rng.u8(..4) == 0;
    story.tell(StreamEvent::Broke(StreamBreak { target: target.clone(), rest, cause, is_death }));
    let is_sought = !matches!(
        story.next(),
        StreamStep::End(
            StreamEnd::Complete
                | StreamEnd::Unfit(_)
                | StreamEnd::Count
                | StreamEnd::Deaths
                | StreamEnd::Budget
        )
    );
    let is_retry = is_sought && cause.is_fault();
    assert_eq!(budget - story.budget, u32::from(is_retry), "a search after a fault is a retry");
    if !is_sought {
        return;
    }
    assert!(matches!(rest, StreamRest::Whole | StreamRest::Text), "{rest:?} is not continued");
    seen.retries += u32::from(is_retry);
    seen.continuations += u32::from(is_retry);
    seen.searches += 1;
    seen.is_fault = cause.is_fault();
    seen.is_begun = rest == StreamRest::Text;
    seen.tried.clear();
    (seen.rounds, seen.failed_rounds) = (0, 0);
    let passed = story.now.duration_since(*START);
    let left = story.sight.deadline.remaining(story.now).min(story.sight.silence_max);
    seen.until_ms = u64::try_from((passed + left).as_millis()).unwrap();
    match target {
        Some(StreamTarget::Replica(name)) => seen.broken.push(name),
        Some(StreamTarget::Region(name)) => seen.lost.push(name),
        None => {}
    }
}

/// Checks that a try leaves out all targets that it has to.
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
        assert!(seen.broken.iter().all(is_left_out), "goes back although another target is left");
        let is_first = seen.rounds == 0;
        assert!(!is_first || !seen.lost.iter().any(is_asked), "asks a lost region first");
    }
    // A target is left that serves the model and may continue the stream.
    let is_place = |it: &TestStreamReplica| {
        it.serves_model && (!is_left_out(&it.name) || seen.tried.contains(&it.name))
    };
    assert!(sight.replicas.iter().any(is_place) || sight.regions.iter().any(is_asked), "in vain");
    assert!(sight.regions.iter().all(|it| is_asked(it) || is_any_unable || seen.lost.contains(it)));
    // No target is left out without a reason.
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
    let asked = story.asked.len();
    let is_failure = matches!(event, StreamEvent::OtherReply(_)) || event == FAILED;
    let has_time = story.now < *START + ms(seen.until_ms);
    let is_other = matches!(event, StreamEvent::OtherReply(Some(_)));
    story.tell(event);
    let is_over = matches!(story.next(), StreamStep::End(_));
    let retry = match story.asked[asked..] {
        [] => None,
        [(retry, is_allowed)] => {
            assert!(is_failure && has_time, "no try failed, or no time is left for another");
            assert!(is_allowed || is_over, "a search that was refused ends");
            is_allowed.then_some(retry)
        }
        _ => panic!("one result, two questions"),
    };
    let is_repeated = is_failure && !is_over;
    assert_eq!(retry.is_some(), is_repeated && seen.is_fault, "a try that failed and is repeated");
    assert!(retry != Some(StreamRetry::Try) || is_other, "the same round after a failure");
    seen.retries += u32::from(retry.is_some());
    seen.failed_rounds += u32::from(retry == Some(StreamRetry::Round));
    assert!(seen.failed_rounds <= 3, "more rounds than allowed");
    if is_repeated && matches!(story.next(), StreamStep::Try { .. }) {
        seen.tried.extend(replica);
    }
    story.now += ms(rng.u64(0..60));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn every_stream_keeps_its_invariants(sight in any_stream(), seed in any::<u64>()) {
        let (rules, budget) = (sight.rules, sight.retries);
        let mut story = StreamStory::of(sight);
        let mut rng = fastrand::Rng::with_seed(seed);
        let (seen, end) = run(&mut story, &mut rng);

        // An end says if a target was sought.
        prop_assert!(!end.is_after_search() || seen.searches > 0);
        // An end is the end.
        prop_assert_eq!(story.next(), StreamStep::End(end));
        // Never more continuations than allowed, nor more retries than the budget had.
        prop_assert!(seen.continuations <= rules.count_max);
        prop_assert_eq!(seen.retries, budget - story.budget);
        // Every end has its reason.
        match end {
            StreamEnd::Count => prop_assert_eq!(seen.continuations, rules.count_max),
            StreamEnd::Budget => prop_assert_eq!(story.budget, 0),
            StreamEnd::NoTargetLeft | StreamEnd::Late | StreamEnd::Failed => {
                prop_assert!(seen.searches > 0);
            }
            StreamEnd::Deaths => prop_assert!(story.stream.deaths() >= 2),
            StreamEnd::Complete | StreamEnd::Unfit(_) => {}
        }
    }
}
