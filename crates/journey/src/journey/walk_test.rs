//! All short journeys: every result of every step, in small surroundings.

use std::collections::BTreeSet;

use spillway_route::ShedReason;
use spillway_types::{RegionName, ReplicaSlot};

use super::stories::{BROKEN, ERROR, NO_ROOM, OK, UNSENT, region_failed};
use super::test_sight::{Story, TestSight, ms, short};
use super::{Journey, JourneyState};
use crate::{Event, RegionFailure, ResidencyDenial, RetrySafety, Step};

/// Results that are chosen in all ways; after them the first one of each step is taken.
const CHOICES: usize = 5;
/// Steps after which every journey here must be over.
const STEPS_MAX: usize = 60;
/// Time that passes while a request waits or pauses.
const WAIT_MS: u64 = 3_000;

/// States and those that follow them, as the comments at [`JourneyState`] tell.
const DIAGRAM: [(&str, &[&str]); 10] = [
    ("Planning", &["Forwarding", "Over", "Placing", "Renaming", "Waiting"]),
    ("Placing", &["Asking", "Over", "Pausing"]),
    ("Asking", &["Over", "Planning", "Silent"]),
    ("Silent", &["Hedging", "Listening"]),
    ("Hedging", &["Listening"]),
    ("Listening", &["Over", "Planning"]),
    ("Forwarding", &["Over", "Planning"]),
    ("Waiting", &["Over", "Planning"]),
    ("Pausing", &["Planning"]),
    ("Renaming", &["Planning"]),
];

/// Kinds of endings, by their words in stories.
const ENDINGS: [&str; 11] = [
    "end ClientFault",
    "end HeldReply",
    "end LastFailure",
    "end OnlyRegionGone",
    "end Reply",
    "outside residency",
    "no place",
    "refused",
    "sent away",
    "shed",
    "too late",
];

/// Changes of state and endings of all journeys.
#[derive(Debug, Default)]
struct Seen {
    edges: BTreeSet<(&'static str, &'static str)>,
    endings: BTreeSet<&'static str>,
}

fn name(journey: &Journey) -> &'static str {
    match journey.state {
        JourneyState::Planning => "Planning",
        JourneyState::Placing { .. } => "Placing",
        JourneyState::Asking(_) => "Asking",
        JourneyState::Silent(_) => "Silent",
        JourneyState::Hedging { .. } => "Hedging",
        JourneyState::Listening(_) => "Listening",
        JourneyState::Forwarding { .. } => "Forwarding",
        JourneyState::Waiting(_) => "Waiting",
        JourneyState::Pausing(_) => "Pausing",
        JourneyState::Renaming => "Renaming",
        JourneyState::Over(_) => "Over",
    }
}

/// Returns what a driver can report now. The first one leads to an end.
fn results(story: &Story) -> Vec<Event> {
    let retry_on_new_connection = Event::Failed {
        safety: RetrySafety::Unsent,
        is_fault: true,
        was_kept: true,
        can_repeat: true,
    };
    let mut replies =
        vec![OK, NO_ROOM, ERROR, UNSENT, BROKEN, retry_on_new_connection, Event::ClientFault];
    match &story.journey.state {
        JourneyState::Placing { .. } => vec![Event::Asked, Event::NoPlace],
        JourneyState::Asking(_) => {
            if story.journey.may_hedge(&story.sight) {
                replies.push(Event::Silent);
            }
            replies
        }
        JourneyState::Listening(_) => replies,
        JourneyState::Hedging { .. } => {
            vec![Event::Hedged { is_asked: true }, Event::Hedged { is_asked: false }]
        }
        JourneyState::Forwarding { .. } => vec![
            Event::RegionReplied,
            region_failed(RegionFailure::Closed),
            region_failed(RegionFailure::Leaving),
            region_failed(RegionFailure::OutsideResidency),
            region_failed(RegionFailure::Broken { safety: RetrySafety::Unsent }),
            region_failed(RegionFailure::Broken { safety: RetrySafety::Never }),
            Event::ClientFault,
        ],
        JourneyState::Waiting(_) => vec![
            Event::Paused,
            Event::Turn { due: story.now },
            Event::QueueFull,
            Event::SentAway { reason: ShedReason::PushedOut, retry_after: ms(2_000) },
        ],
        JourneyState::Pausing(_) => vec![Event::Paused],
        JourneyState::Renaming => {
            vec![Event::StoodIn { is_renamed: false }, Event::StoodIn { is_renamed: true }]
        }
        JourneyState::Planning | JourneyState::Silent(_) | JourneyState::Over(_) => Vec::new(),
    }
}

/// Drives one journey by these choices. Returns the number of results that each step could have had.
fn run(mut story: Story, choices: &[usize], seen: &mut Seen) -> Vec<usize> {
    let mut widths = Vec::new();
    for _ in 0..STEPS_MAX {
        let before = name(&story.journey);
        let step = story.next();
        note(before, &story, seen);
        if matches!(step, Step::End(_)) {
            let words = short(&step);
            let ending = ENDINGS.iter().find(|ending| words.starts_with(**ending));
            seen.endings.insert(ending.unwrap_or_else(|| panic!("an unknown end: {words}")));
            return widths;
        }
        let results = results(&story);
        assert!(!results.is_empty(), "{step:?} has no result in {before}");
        let event = results[choices.get(widths.len()).copied().unwrap_or(0)];
        widths.push(results.len());
        tell(&mut story, event, seen);
    }
    panic!("no end after {choices:?}: {:?}", story.journey);
}

/// Reports a result, and checks that a retry is paid for and followed by a plan.
fn tell(story: &mut Story, event: Event, seen: &mut Seen) {
    match event {
        Event::Paused | Event::Turn { .. } => story.now += ms(WAIT_MS),
        Event::StoodIn { .. } => story.sight.stand_ins -= 1,
        _ => {}
    }
    let (before, budget) = (name(&story.journey), story.sight.retries.get());
    let retry = story.journey.on(event, &story.sight, story.now);
    note(before, story, seen);
    let paid = budget - story.sight.retries.get();
    assert_eq!(paid, u32::from(retry.is_some()), "{event:?} in {before}");
    assert!(retry.is_none() || name(&story.journey) == "Planning", "{event:?} in {before}");
}

fn note(before: &'static str, story: &Story, seen: &mut Seen) {
    let after = name(&story.journey);
    if before != after {
        seen.edges.insert((before, after));
    }
}

/// Drives all journeys that begin in these surroundings. Returns their number.
fn walk(surroundings: impl Fn() -> TestSight, seen: &mut Seen) -> u32 {
    let mut choices: Vec<usize> = Vec::new();
    for number in 1.. {
        let widths = run(Story::of(surroundings()), &choices, seen);
        choices.resize(CHOICES.min(widths.len()), 0);
        // The next path takes the next result of the last step that has one.
        while let Some(last) = choices.pop() {
            if last + 1 < widths[choices.len()] {
                choices.push(last + 1);
                break;
            }
        }
        if choices.is_empty() {
            return number;
        }
    }
    unreachable!("all paths are finite")
}

fn free(replicas: usize) -> TestSight {
    let sight = TestSight::new(replicas);
    sight.retries.set(2);
    sight
}

fn full() -> TestSight {
    free(1).full()
}

fn repeatable() -> TestSight {
    let mut sight = free(3);
    (sight.is_repeatable, sight.is_idempotent) = (true, true);
    sight
}

fn unhedged() -> TestSight {
    let sight = repeatable();
    sight.hedges.set(0);
    sight
}

fn unquiet() -> TestSight {
    let mut sight = repeatable();
    sight.is_quiet = false;
    sight
}

fn abroad() -> TestSight {
    full().with_regions(&["b", "c"])
}

fn stand_in() -> TestSight {
    let mut sight = full();
    sight.stand_ins = 2;
    sight
}

fn pinned() -> TestSight {
    let mut sight = free(1);
    sight.pinned = Some(ReplicaSlot(0));
    sight.rules.wait_ms_max = WAIT_MS - 1;
    sight
}

fn withdrawn() -> TestSight {
    let mut sight = free(1);
    sight.permission = Err(ResidencyDenial::Withdrawn);
    sight
}

fn only_there() -> TestSight {
    let mut sight = abroad();
    sight.only_region = Some(RegionName::from("b"));
    sight
}

fn too_late() -> TestSight {
    let mut sight = free(1);
    sight.first_token_ms = Some(5_000.0);
    sight.rules.slo = Some(ms(100));
    sight.regroup();
    sight
}

#[test]
fn every_change_of_state_is_in_the_diagram_and_every_one_of_the_diagram_happens() {
    let all: [fn() -> TestSight; 12] = [
        || free(0),
        || free(2),
        full,
        repeatable,
        unhedged,
        unquiet,
        abroad,
        stand_in,
        pinned,
        withdrawn,
        only_there,
        too_late,
    ];
    let mut seen = Seen::default();
    let mut journeys = 0;
    for surroundings in all {
        journeys += walk(surroundings, &mut seen);
    }
    assert!(journeys > 1_000, "{journeys} journeys");
    let drawn: BTreeSet<_> =
        DIAGRAM.iter().flat_map(|(from, to)| to.iter().map(move |to| (*from, *to))).collect();
    assert_eq!(seen.edges, drawn);
    assert_eq!(seen.endings, BTreeSet::from(ENDINGS));
}
