//! All short journeys: every result of every step, in small surroundings.

use std::collections::BTreeSet;

use spillway_route::ShedReason;
use spillway_types::{RegionName, ReplicaSlot};

use super::stories::{BROKEN, ERROR, LACKS_MODEL, NO_ROOM, OK, UNSENT, region_failed};
use super::test_sight::{Story, TestSight, ms, short};
use super::{Journey, JourneyState};
use crate::{Event, RegionFailure, ResidencyDenial, RetrySafety, Step};

/// Results that are chosen in all ways; after them the first one of each step is taken.
const CHOICES: usize = 5;
/// Steps after which every journey here must be over.
const STEPS_MAX: usize = 60;
/// Time that passes while a request waits or pauses.
const WAIT_MS: u64 = 3_000;

/// States and those that follow them, as in the comments at [`JourneyState`].
const DIAGRAM: [(&str, &[&str]); 13] = [
    (
        "Planning",
        &[
            "Forwarding",
            "Numbering",
            "Over",
            "Pausing",
            "Placing",
            "Probing",
            "Renaming",
            "Waiting",
        ],
    ),
    ("Numbering", &["Planning"]),
    ("Probing", &["Over", "Pausing", "Placing", "Renaming"]),
    ("Placing", &["Asking", "Over", "Pausing"]),
    ("Asking", &["Over", "Planning", "Retrying", "Silent"]),
    ("Silent", &["Hedging", "Listening"]),
    ("Hedging", &["Listening"]),
    ("Listening", &["Over", "Planning", "Retrying"]),
    ("Forwarding", &["Over", "Planning", "Retrying"]),
    ("Retrying", &["Over", "Planning"]),
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
    "no slot",
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
        JourneyState::Numbering => "Numbering",
        JourneyState::Probing { .. } => "Probing",
        JourneyState::Retrying { .. } => "Retrying",
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
        is_death: false,
    };
    let mut replies =
        vec![OK, NO_ROOM, ERROR, UNSENT, BROKEN, LACKS_MODEL, retry_on_new_connection];
    replies.push(Event::ClientFault);
    match &story.journey.state {
        JourneyState::Numbering => vec![Event::Ticket(0)],
        JourneyState::Probing { .. } => {
            [false, true].map(|is_allowed| Event::LateProbe { is_allowed }).into()
        }
        JourneyState::Retrying { .. } => {
            [true, false].map(|is_allowed| Event::Retry { is_allowed }).into()
        }
        JourneyState::Placing { .. } => vec![Event::Asked, Event::NoSlot],
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
        let step = story.step();
        note(before, &story, seen);
        if matches!(step, Step::End(_)) {
            let words = short(&step);
            let ending = ENDINGS.iter().find(|ending| words.starts_with(**ending));
            seen.endings.insert(ending.unwrap_or_else(|| panic!("an unknown end: {words}")));
            return widths;
        }
        let results = results(&story);
        assert!(!results.is_empty(), "{step:?} has no result in {before}");
        let event = match results[..] {
            // No choice.
            [event] => event,
            _ => {
                let event = results[choices.get(widths.len()).copied().unwrap_or(0)];
                widths.push(results.len());
                event
            }
        };
        tell(&mut story, event, seen);
    }
    panic!("no end after {choices:?}: {:?}", story.journey);
}

/// Reports a result, and checks that nothing but an allowed retry is followed by a plan of one.
fn tell(story: &mut Story, event: Event, seen: &mut Seen) {
    match event {
        Event::Paused | Event::Turn { .. } => story.now += ms(WAIT_MS),
        Event::StoodIn { .. } => story.sight.stand_ins -= 1,
        _ => {}
    }
    let before = name(&story.journey);
    story.tell(event);
    note(before, story, seen);
    if let Event::Retry { is_allowed } = event {
        let expected = if is_allowed { "Planning" } else { "Over" };
        assert_eq!(name(&story.journey), expected);
    }
}

fn note(before: &'static str, story: &Story, seen: &mut Seen) {
    let after = name(&story.journey);
    if before != after {
        seen.edges.insert((before, after));
    }
}

/// Drives all journeys that begin in these surroundings. Returns their number.
fn walk(story: impl Fn() -> Story, seen: &mut Seen) -> u32 {
    let mut choices: Vec<usize> = Vec::new();
    for number in 1.. {
        let widths = run(story(), &choices, seen);
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

fn full() -> TestSight {
    TestSight::new(1).full()
}

fn repeatable() -> TestSight {
    let mut sight = TestSight::new(3);
    (sight.is_repeatable, sight.is_idempotent) = (true, true);
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
    let mut sight = TestSight::new(1);
    sight.pinned = Some(ReplicaSlot(0));
    sight.rules.wait_ms_max = WAIT_MS - 1;
    sight
}

fn withdrawn() -> TestSight {
    let mut sight = TestSight::new(1);
    sight.permission = Err(ResidencyDenial::Withdrawn);
    sight
}

fn only_there() -> TestSight {
    let mut sight = abroad();
    sight.only_region = Some(RegionName::from("b"));
    sight
}

fn too_late() -> TestSight {
    let mut sight = TestSight::new(1);
    sight.first_token_ms = Some(5_000.0);
    sight.rules.slo = Some(ms(100));
    sight.regroup();
    sight
}

fn too_late_here() -> TestSight {
    let mut sight = too_late();
    sight.stand_ins = 1;
    sight
}

/// A full replica, and a queue in which the first token would come too late.
fn late_in_queue() -> TestSight {
    let mut sight = full();
    sight.rules.slo = Some(ms(100));
    sight.wait_ms = Some(9_000);
    sight
}

fn promised(sight: TestSight) -> Story {
    let mut story = Story::of(sight);
    story.journey.redeem_promise();
    story
}

#[test]
fn every_change_of_state_is_in_the_diagram_and_every_one_of_the_diagram_happens() {
    let all: [fn() -> TestSight; 12] = [
        || TestSight::new(0),
        || TestSight::new(2),
        full,
        repeatable,
        unquiet,
        abroad,
        stand_in,
        pinned,
        withdrawn,
        only_there,
        too_late,
        too_late_here,
    ];
    let mut seen = Seen::default();
    let mut journeys = 0;
    for surroundings in all {
        journeys += walk(|| Story::of(surroundings()), &mut seen);
    }
    // A request that was promised a slot looks for a moment at which it is not too late.
    journeys += walk(|| promised(too_late()), &mut seen);
    journeys += walk(|| promised(late_in_queue()), &mut seen);
    assert!(journeys > 1_000, "{journeys} journeys");
    let drawn: BTreeSet<_> =
        DIAGRAM.iter().flat_map(|(from, to)| to.iter().map(move |to| (*from, *to))).collect();
    assert_eq!(seen.edges, drawn);
    assert_eq!(seen.endings, BTreeSet::from(ENDINGS));
}
