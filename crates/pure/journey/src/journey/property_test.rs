//! Named invariants of journeys through any surroundings and any events.

use proptest::prelude::*;
use spillway_route::ShedReason;
use spillway_types::{Deadline, ReplicaSlot};

use super::stories::{MUCH, kept_share};
use super::test_sight::{START, Story, TestRegion, TestReplica, TestSight, ms};
use crate::{
    Connection, Ending, Event, Journey, Position, RegionFailure, ResidencyDenial, RetrySafety,
    StatusClass, Step, Unasked, WaitTerms,
};

/// Attempts that a journey may make.
const ATTEMPTS_MAX: u32 = 3;
/// Steps after which a journey has to be over: those that its bounds allow, with room for waits.
const STEPS_MAX: usize = 2_000;

/// Observations of a journey.
#[derive(Debug, Default)]
struct Seen {
    asked: Vec<ReplicaSlot>,
    sent: u32,
    /// Steps to ask a second replica, and those that asked one.
    hedges: u32,
    hedged: u32,
    forwarded: Vec<String>,
    /// Numbers that were taken, and changes to stand-in models.
    numbers: u32,
    renamed: u32,
    /// The last result of an attempt, until a retry of it is asked for.
    result: Option<Event>,
    retries: u32,
    has_failed: bool,
    has_replied: bool,
    has_held: bool,
    is_client_fault: bool,
    ending: Option<Ending>,
    unasked: Unasked,
}

fn any_replica() -> impl Strategy<Value = TestReplica> {
    let facts = (0..4_u32, 0..4_u32, any::<bool>(), any::<bool>());
    facts.prop_map(|(in_flight, limit, is_guess, has_loaded)| TestReplica {
        in_flight,
        limit,
        is_guess,
        rests_until: None,
        has_loaded,
    })
}

fn any_story() -> impl Strategy<Value = Story> {
    let region = (any::<bool>(), any::<bool>(), 0..12_u8, 0..3_u32);
    let rules = (any::<bool>(), any::<bool>(), any::<bool>(), 0..3_u32, 0..4_u32);
    let queue = (any::<bool>(), 0..5_u32, prop::option::of(0..30_000_u32), any::<bool>());
    let limits = (1..80_000_u64, prop::option::of(1..20_000_u64), any::<bool>(), 0..4_u8);
    let place = (0..5_u8, 0..2_u8, prop::option::of(1..60_000_u64), any::<bool>());
    let first_token = prop::option::of((0..3_000_u32, 1..2_000_u64));
    let late = (first_token, 0..2_u32, any::<bool>(), prop::option::of(Just(1_u64)));
    (
        prop::collection::vec(any_replica(), 0..5),
        prop::collection::vec(region, 0..4),
        rules,
        queue,
        limits,
        place,
        late,
        0..3_u8,
    )
        .prop_map(|(replicas, regions, rules, queue, limits, place, late, tenant)| {
            let mut sight = TestSight::new(replicas.len());
            sight.replicas = replicas;
            let names = ["b", "c", "d", "e"];
            let made = regions.iter().zip(names).map(|(region, name)| {
                let (may_serve, is_reachable, running, hot) = *region;
                TestRegion {
                    may_serve,
                    is_reachable,
                    running: running.into(),
                    hot,
                    ..TestRegion::free(name)
                }
            });
            sight.regions = made.collect();
            sight.is_roomy = sight.regions.is_empty();
            (sight.is_idempotent, sight.is_repeatable, sight.rules.reads_caches) =
                (rules.0, rules.1, rules.2);
            sight.stand_ins = rules.3;
            (sight.is_quiet, sight.ahead, sight.wait_ms, sight.has_room) = queue;
            sight.inquiry.deadline = Deadline::after(*START, ms(limits.0));
            sight.patience = limits.1.map(ms);
            if limits.2 {
                sight.rules.queue_count_max = 0;
                sight.has_room = false;
            }
            sight.inquiry.priority = limits.3;
            sight.permission = match place.0 {
                0 => Err(ResidencyDenial::NeverGiven),
                1 => Err(ResidencyDenial::Withdrawn),
                _ => Ok(()),
            };
            sight.inquiry.hop = place.1;
            sight.busy_until = place.2.map(|busy_ms| *START + ms(busy_ms));
            if place.3 && !sight.replicas.is_empty() {
                sight.best = sight.replicas.len().div_ceil(2);
            }
            sight.adapter = late.3;
            sight.tenant = [None, Some(MUCH), Some(MUCH + 1)][usize::from(tenant)];
            (sight.much, sight.share) = (vec![MUCH], Some(kept_share()));
            if let Some((first_token_ms, slo_ms)) = late.0 {
                sight.first_token_ms = Some(first_token_ms as f32);
                sight.rules.slo = Some(ms(slo_ms));
            }
            sight.regroup();
            let mut story = Story::of(sight);
            (story.retries, story.late_probes) = (rules.4, late.1);
            if late.2 {
                story.journey.redeem_promise();
            }
            story
        })
}

fn any_safety(rng: &mut fastrand::Rng) -> RetrySafety {
    [RetrySafety::Unsent, RetrySafety::Reset, RetrySafety::Never][rng.usize(..3)]
}

/// Drives a journey by chance to its end, and notes what it did.
fn run(story: &mut Story, rng: &mut fastrand::Rng) -> Seen {
    let mut seen = Seen::default();
    if rng.u8(..4) == 0 {
        // A continuation of a stream leaves places out.
        let replicas = story.sight.replicas.len().min(1);
        let replicas = [ReplicaSlot(0)].into_iter().take(replicas).collect();
        let regions: Vec<_> = story.sight.regions.iter().map(|it| it.name.clone()).collect();
        let regions = regions.into_iter().filter(|_| rng.bool()).collect();
        seen.unasked = Unasked { replicas, regions };
        story.journey = Journey::new(*START, ATTEMPTS_MAX).without(seen.unasked.clone());
    }
    for _ in 0..STEPS_MAX {
        if rng.u8(..8) == 0 {
            // Another view, with the same replicas.
            story.journey.follow_view(Some);
        }
        let step = story.step();
        if let Step::End(ending) = step {
            seen.ending = Some(ending);
            break;
        }
        act(&step, story, rng, &mut seen);
        story.now += ms(rng.u64(0..400));
    }
    seen
}

fn act(step: &Step, story: &mut Story, rng: &mut fastrand::Rng, seen: &mut Seen) {
    match step {
        Step::TakeTicket => {
            seen.numbers += 1;
            assert!(seen.numbers <= 1 + seen.renamed, "a second number for one model");
            story.tell(Event::Ticket(rng.u64(..)));
        }
        Step::TakeRetry(safety) => take_retry(*safety, story, seen),
        Step::TakeLateProbe => take_late_probe(story),
        Step::Ask { attempt, connection } => {
            assert_eq!(story.sight.permission, Ok(()), "asked where it may not be served");
            assert!(!seen.unasked.replicas.contains(&attempt.slot), "asked a place that broke off");
            let is_new = !seen.asked.contains(&attempt.slot);
            assert!(is_new || *connection == Connection::New, "asked twice: {attempt:?}");
            assert!(leaves_share(story, attempt.slot), "took a place that is left to others");
            if rng.u8(..4) == 0 {
                return story.tell(Event::NoSlot);
            }
            seen.asked.push(attempt.slot);
            seen.sent += 1;
            story.tell(Event::Asked);
            if story.journey.may_hedge(&story.sight) && rng.bool() {
                story.tell(Event::Silent);
            } else {
                answer(story, rng, seen);
            }
        }
        Step::Hedge(second) => {
            seen.hedges += 1;
            assert_eq!(seen.hedges, 1, "a second hedge");
            assert!(!seen.asked.contains(&second.slot), "hedged with the same replica");
            assert!(leaves_share(story, second.slot), "hedged at a place that is left to others");
            let is_asked = rng.bool();
            if is_asked {
                seen.asked.push(second.slot);
                (seen.sent, seen.hedged) = (seen.sent + 1, seen.hedged + 1);
            }
            story.tell(Event::Hedged { is_asked });
        }
        Step::Listen => answer(story, rng, seen),
        Step::Forward { region, .. } => {
            assert_eq!(story.sight.inquiry.hop, 0, "past the hop limit");
            let known = story.sight.regions.iter().find(|known| known.name == *region);
            assert!(known.is_some_and(|known| known.may_serve), "outside residency");
            assert!(!seen.unasked.regions.contains(region), "asked a region that is left out");
            assert_eq!(story.journey.position(), Position::Outside, "waits while served elsewhere");
            seen.forwarded.push(region.to_string());
            forward(story, rng, seen);
        }
        Step::Wait(terms) => wait(terms, story, rng),
        Step::Pause(_) => story.tell(Event::Paused),
        Step::StandIn => {
            assert!(story.sight.stand_ins > 0);
            story.sight.stand_ins -= 1;
            let is_renamed = rng.bool();
            seen.renamed += u32::from(is_renamed);
            story.tell(Event::StoodIn { is_renamed });
        }
        Step::End(_) => unreachable!("the end is no act"),
    }
}

fn wait(terms: &WaitTerms, story: &mut Story, rng: &mut fastrand::Rng) {
    assert!(terms.until > story.now, "waits although its time is over");
    assert!(terms.until <= story.sight.inquiry.deadline.at(), "waits past its deadline");
    let is_kept = story.sight.tenant == Some(MUCH) && story.sight.best > 1;
    assert!(!terms.passes_turn_on || is_kept, "passed a turn on that is of use");
    assert!(terms.pause <= ms(250) && story.now + terms.pause <= terms.until + ms(250));
    let event = match rng.u8(..12) {
        0 => Event::Turn { due: story.now },
        1 => Event::QueueFull,
        2 => Event::SentAway { reason: ShedReason::PushedOut, retry_after: ms(2_000) },
        _ => Event::Paused,
    };
    story.now += ms(rng.u64(0..250));
    if rng.u8(..6) == 0 {
        story.sight.replicas.iter_mut().for_each(|replica| replica.in_flight = 0);
    }
    story.tell(event);
}

/// Returns true if a request may use a place at a replica: a tenant with much leaves the last replica
/// to others if it can wait for another one.
fn leaves_share(story: &Story, slot: ReplicaSlot) -> bool {
    let sight = &story.sight;
    let is_bound = sight.tenant == Some(MUCH) && sight.rules.queue_count_max > 0 && sight.best > 1;
    !is_bound || slot.index() + 1 != sight.best
}

/// A replica replies or fails.
fn answer(story: &mut Story, rng: &mut fastrand::Rng, seen: &mut Seen) {
    let can_repeat = rng.u8(..8) > 0;
    let event = match rng.u8(..9) {
        0 => {
            seen.is_client_fault = true;
            Event::ClientFault
        }
        1..=4 => {
            seen.has_failed = true;
            Event::Failed {
                safety: any_safety(rng),
                is_fault: rng.bool(),
                was_kept: rng.bool(),
                can_repeat,
                is_death: rng.u8(0..8) == 0,
            }
        }
        5..=6 => {
            let status = if rng.bool() { StatusClass::NoRoom } else { StatusClass::Failed };
            Event::Replied { status, can_repeat }
        }
        _ => Event::Replied { status: StatusClass::Final, can_repeat },
    };
    story.tell(event);
    seen.result = Some(event);
    let is_over = story.journey.ending().is_some();
    seen.has_replied |= is_over && matches!(event, Event::Replied { .. });
}

/// The request may try a prediction, or another one may.
fn take_late_probe(story: &mut Story) {
    assert_eq!(story.journey.attempts(), 0, "too late although it was sent before");
    let event = story.take(&Step::TakeLateProbe).unwrap();
    story.tell(event);
    let may_ask = story.sight.permission.is_ok();
    let is_asked = matches!(story.step(), Step::Ask { .. });
    assert_eq!(is_asked, may_ask && event == Event::LateProbe { is_allowed: true });
}

/// The budget allows a retry, or is used up.
fn take_retry(safety: RetrySafety, story: &mut Story, seen: &mut Seen) {
    assert_ne!(safety, RetrySafety::Never, "repeated what must not be");
    assert!(story.journey.attempts() < ATTEMPTS_MAX, "no attempt is left for it");
    let result = seen.result.take().expect("one question for each result");
    let (is_reply, can_repeat) = match result {
        Event::Replied { status, can_repeat } => {
            assert_ne!(status, StatusClass::Final, "a good reply is not replaced");
            (true, can_repeat)
        }
        Event::Failed { can_repeat, .. }
        | Event::RegionFailed { failure: RegionFailure::Broken { .. }, can_repeat } => {
            (false, can_repeat)
        }
        other => panic!("no attempt failed: {other:?}"),
    };
    assert!(can_repeat, "repeated without a body");
    let event = story.take(&Step::TakeRetry(safety)).unwrap();
    story.tell(event);
    let is_allowed = event == Event::Retry { is_allowed: true };
    assert_eq!(story.journey.ending().is_none(), is_allowed, "a refused retry ends the journey");
    seen.retries += u32::from(is_allowed);
    seen.has_held |= is_reply && is_allowed;
    seen.has_replied |= is_reply && !is_allowed;
}

fn forward(story: &mut Story, rng: &mut fastrand::Rng, seen: &mut Seen) {
    let failure = match rng.u8(..8) {
        0 => RegionFailure::Closed,
        1 => RegionFailure::NotConnected,
        2 => RegionFailure::Leaving,
        3 => RegionFailure::OutsideResidency,
        4 => RegionFailure::Refused { wait: rng.bool().then(|| ms(rng.u64(0..5_000))) },
        5 => RegionFailure::Broken { safety: any_safety(rng) },
        _ => {
            seen.has_replied = true;
            return story.tell(Event::RegionReplied);
        }
    };
    seen.has_failed |= matches!(failure, RegionFailure::Broken { .. });
    if failure == RegionFailure::OutsideResidency {
        // The rules of that region are known from now on.
        let name = seen.forwarded.last().cloned().unwrap_or_default();
        story.sight.regions.iter_mut().for_each(|region| {
            region.may_serve &= region.name.as_str() != name;
        });
    }
    let event = Event::RegionFailed { failure, can_repeat: rng.u8(..8) > 0 };
    story.tell(event);
    seen.result = Some(event);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn every_journey_keeps_its_invariants(story in any_story(), seed in any::<u64>()) {
        let mut story = story;
        let (retries, hop) = (story.retries, story.sight.inquiry.hop);
        let mut rng = fastrand::Rng::with_seed(seed);
        let seen = run(&mut story, &mut rng);

        // Every journey ends, once.
        let Some(ending) = seen.ending else { panic!("no end: {seen:?}") };
        prop_assert_eq!(story.step(), Step::End(ending));
        // Attempts and the budget are kept; a hedge may be one more than a retry.
        prop_assert!(story.journey.attempts() <= ATTEMPTS_MAX.max(1 + seen.hedged));
        prop_assert!(seen.sent <= story.journey.attempts());
        prop_assert_eq!(retries - story.retries, seen.retries);
        // A guest goes nowhere else.
        prop_assert!(hop == 0 || seen.forwarded.is_empty());
        // Every end has its reason, and no reply is lost: one answer, never two.
        match ending {
            Ending::Reply => prop_assert!(seen.has_replied),
            Ending::HeldReply => prop_assert!(seen.has_held && !seen.has_replied),
            Ending::LastFailure => prop_assert!(seen.has_failed && !seen.has_held),
            Ending::ClientFault => prop_assert!(seen.is_client_fault && !seen.has_held),
            _ => prop_assert!(!seen.has_replied && !seen.has_held && !seen.is_client_fault),
        }
    }
}
