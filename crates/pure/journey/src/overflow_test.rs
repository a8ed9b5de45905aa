use std::time::{Duration, Instant};

use spillway_route::{Candidate, Policy, ShedReason};
use spillway_types::RAMP_FULL;

use super::*;
use crate::journey::test_sight::{START, Story, TestSight, ms};
use crate::{Event, RegionFailure, StatusClass, Step, Unasked};

const KEPT: OverflowEvent = OverflowEvent::Allowance { is_allowed: false };
const ALLOWED: OverflowEvent = OverflowEvent::Allowance { is_allowed: true };

/// Returns a failure of an attempt at a replica of one's own.
fn failed(safety: RetrySafety) -> Event {
    let (is_fault, was_kept, can_repeat, is_death) = (true, false, true, false);
    Event::Failed { safety, is_fault, was_kept, can_repeat, is_death }
}

/// Drives a story to its end, with one event for each step that is no number or budget.
fn ended(mut story: Story, events: &[Event]) -> Story {
    let mut events = events.iter();
    loop {
        let step = story.next();
        match step {
            Step::End(_) => return story,
            Step::Ask { .. } => {
                story.tell(Event::Asked);
                story.tell(*events.next().expect("an event for the attempt"));
            }
            _ => story.tell(*events.next().unwrap_or_else(|| panic!("an event for {step:?}"))),
        }
    }
}

fn reason(story: &Story) -> Option<&'static str> {
    Overflow::after(&story.journey).map(|overflow| overflow.reason())
}

#[test]
fn a_request_overflows_for_each_lack_of_replicas() {
    let none = Story::of(TestSight::new(0));
    assert_eq!(reason(&ended(none, &[])), Some("no_replica"));

    let mut full = TestSight::new(1).full();
    full.has_room = false;
    assert_eq!(reason(&ended(Story::of(full), &[])), Some("queue_full"));

    let waited = Story::of(TestSight::new(1).full());
    let sent_away = Event::SentAway { reason: ShedReason::Waited, retry_after: ms(1_000) };
    assert_eq!(reason(&ended(waited, &[sent_away])), Some("waited"));

    let down = Story::of(TestSight::new(2));
    let unsent = failed(RetrySafety::Unsent);
    assert_eq!(reason(&ended(down, &[unsent, unsent])), Some("failed"));

    let busy = Story::of(TestSight::new(1));
    let refused = Event::Replied { status: StatusClass::NoRoom, can_repeat: true };
    assert_eq!(reason(&ended(busy, &[refused])), Some("refused"));
}

#[test]
fn a_request_that_was_served_or_may_be_half_done_does_not_overflow() {
    let served = Event::Replied { status: StatusClass::Final, can_repeat: true };
    assert_eq!(reason(&ended(Story::of(TestSight::new(1)), &[served])), None);
    let broken = ended(Story::of(TestSight::new(1)), &[failed(RetrySafety::Never)]);
    assert_eq!(reason(&broken), None, "a replica may be at work on it");
    assert_eq!(reason(&ended(Story::of(TestSight::new(1)), &[Event::ClientFault])), None);
    let lost = Event::RegionFailed { failure: RegionFailure::Lost, can_repeat: false };
    let forwarded = Story::of(TestSight::new(1).full().with_regions(&["b"]));
    assert_eq!(reason(&ended(forwarded, &[lost])), None, "its body is gone");
}

#[test]
fn a_request_past_its_deadline_and_a_continued_stream_do_not_overflow() {
    let mut late = Story::of(TestSight::new(0));
    late.now = *START + Duration::from_secs(120);
    let late = ended(late, &[]);
    let sight = Hosted::of(late.sight, 1);
    let overflow = Overflow::after(&late.journey);
    let next =
        |mut overflow: Overflow| overflow.next(&sight, late.now, &mut fastrand::Rng::with_seed(1));
    assert!(overflow.is_none_or(|overflow| next(overflow) == OverflowStep::GiveUp));

    let mut continued = Story::of(TestSight::new(0));
    let nothing = Unasked { replicas: Vec::new(), regions: Vec::new() };
    continued.journey = Journey::new(*START, 3).without(nothing);
    assert_eq!(reason(&ended(continued, &[])), None);
}

#[test]
fn a_refusal_that_is_not_tried_elsewhere_overflows_unless_the_request_is_bound() {
    let mut story = Story::of(TestSight::new(2));
    story.retries = 0;
    let refused = |can_repeat| Event::Replied { status: StatusClass::NoRoom, can_repeat };
    let story = ended(story, &[refused(true)]);
    assert_eq!(reason(&story), None, "the journey has a reply");
    let overflow = Overflow::instead_of_refusal(&story.journey).expect("a use");
    assert_eq!(overflow.reason(), "refused");
    let gone = ended(Story::of(TestSight::new(2)), &[refused(false)]);
    assert!(Overflow::instead_of_refusal(&gone.journey).is_none(), "its body is gone");
}

#[test]
fn a_request_that_waits_goes_there_after_some_time() {
    let mut story = Story::of(TestSight::new(1).full());
    assert!(matches!(story.next(), Step::Wait(_)));
    let begun = |after, now| Overflow::instead_of_waiting(&story.journey, ms(after), now);
    assert!(begun(2_000, *START + ms(1_999)).is_none(), "a slot may come free");
    assert!(begun(2_000, *START + ms(2_000)).is_some() && begun(0, *START).is_some());
    let free = Story::of(TestSight::new(1));
    assert!(Overflow::instead_of_waiting(&free.journey, ms(0), *START).is_none());
}

/// A sight with overflow replicas. Their slots follow those of the other replicas.
struct Hosted {
    sight: TestSight,
    group: Group,
    forbidden: Vec<ReplicaSlot>,
}

impl Hosted {
    fn of(mut sight: TestSight, count: u32) -> Self {
        let first = u32::try_from(sight.replicas.len()).unwrap();
        let free = TestSight::new(1).replicas[0];
        sight.replicas.extend((0..count).map(|_| free));
        let candidate = |slot| Candidate {
            slot: ReplicaSlot(slot),
            identity: u64::from(slot),
            weight: 1,
            ramp_permille: RAMP_FULL,
            in_flight_max: u32::MAX,
        };
        let candidates = (first..first + count).map(candidate).collect();
        let group = Group::new(Policy::WeightedLeastConnections, candidates);
        Self { sight, group, forbidden: Vec::new() }
    }
}

macro_rules! forward {
    ($($name:ident($($arg:ident: $of:ty),*) -> $result:ty;)*) => {
        $(fn $name(&self, $($arg: $of),*) -> $result { self.sight.$name($($arg),*) })*
    };
}

impl RequestSight for Hosted {
    forward! {
        inquiry() -> &spillway_types::Inquiry;
        route_rules() -> crate::RouteRules;
        is_idempotent() -> bool;
        is_repeatable() -> bool;
        client_patience() -> Option<Duration>;
        pinned() -> Option<ReplicaSlot>;
        has_stand_in() -> bool;
        starts_with_stand_in() -> bool;
        permission() -> Result<(), crate::ResidencyDenial>;
    }
}

impl ReplicaSight for Hosted {
    type Loads<'a> = <TestSight as ReplicaSight>::Loads<'a>;
    fn group(&self) -> Option<crate::ReplicaGroup<'_>> {
        self.sight.group()
    }
    fn loads(&self, room: Room, with_caches: bool) -> Self::Loads<'_> {
        self.sight.loads(room, with_caches)
    }
    forward! {
        signals(slot: ReplicaSlot) -> spillway_types::Signals;
        replica_speed(slot: ReplicaSlot) -> spillway_types::Speed;
        hold_time(slot: ReplicaSlot) -> spillway_route::HoldTime;
        has_guessed_limit(slot: ReplicaSlot) -> bool;
    }
}

impl OverflowSight for Hosted {
    fn overflow(&self) -> Option<&Group> {
        Some(&self.group)
    }
    fn may_overflow_to(&self, slot: ReplicaSlot) -> bool {
        !self.forbidden.contains(&slot)
    }
}

/// Returns the use of so many hosted APIs after a journey without a replica.
fn begun(count: u32) -> (Overflow, Hosted, Instant) {
    let story = ended(Story::of(TestSight::new(0)), &[]);
    let overflow = Overflow::after(&story.journey).expect("a lack of replicas");
    (overflow, Hosted::of(story.sight, count), story.now)
}

fn short(step: OverflowStep) -> String {
    match step {
        OverflowStep::TakeAllowance(attempt) => format!("take {}", attempt.slot.index()),
        OverflowStep::Ask { attempt, connection: Connection::KeptOrNew } => {
            assert_eq!(attempt.reason, Reason::Overflow);
            format!("ask {}", attempt.slot.index())
        }
        OverflowStep::Ask { attempt, .. } => format!("ask {} anew", attempt.slot.index()),
        OverflowStep::GiveUp => "give up".to_owned(),
    }
}

/// Checks the steps that follow the events.
#[track_caller]
fn check(count: u32, steps: &[(&str, Option<OverflowEvent>)]) {
    let (mut overflow, sight, now) = begun(count);
    for (expected, event) in steps {
        let mut rng = fastrand::Rng::with_seed(1);
        let step = overflow.next(&sight, now, &mut rng);
        assert_eq!(short(step), *expected, "of {steps:?}");
        assert_eq!(overflow.next(&sight, now, &mut rng), step, "a step holds until an event");
        event.iter().for_each(|event| overflow.on(*event));
    }
}

#[test]
fn caps_are_asked_first_and_the_next_api_follows_a_refusal() {
    check(1, &[("take 0", Some(ALLOWED)), ("ask 0", None)]);
    check(1, &[("take 0", Some(KEPT)), ("give up", None)]);
    check(0, &[("give up", None)]);
    let refused = Some(OverflowEvent::Refused);
    let second = [("take 1", Some(ALLOWED)), ("ask 1", refused), ("give up", None)];
    check(2, &[&[("take 0", Some(KEPT))][..], &second].concat());
    check(2, &[&[("take 0", Some(ALLOWED)), ("ask 0", refused)][..], &second].concat());
}

#[test]
fn a_closed_connection_is_replaced_once_and_a_request_that_may_be_half_done_ends() {
    let failed = |safety, was_kept| Some(OverflowEvent::Failed { safety, was_kept });
    let unsent = RetrySafety::Unsent;
    let asked = [("take 0", Some(ALLOWED)), ("ask 0", failed(unsent, true))];
    let anew = [("ask 0 anew", failed(unsent, false)), ("give up", None)];
    check(1, &[&asked[..], &anew].concat());
    let half = [("take 0", Some(ALLOWED)), ("ask 0", failed(RetrySafety::Never, false))];
    check(2, &[&half[..], &[("give up", None)]].concat());
}

#[test]
fn an_api_that_residency_forbids_is_passed_over() {
    let (mut overflow, mut sight, now) = begun(2);
    sight.forbidden.push(ReplicaSlot(0));
    let mut rng = fastrand::Rng::with_seed(1);
    assert_eq!(short(overflow.next(&sight, now, &mut rng)), "take 1");
}
