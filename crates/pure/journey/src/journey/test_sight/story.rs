//! Stories told against a sight of plain data.

use std::time::Instant;

use super::{START, TestSight};
use crate::{Connection, Ending, Event, Journey, Step};

/// A request, its surroundings, its driver's budgets, and the time.
#[derive(Debug)]
pub(crate) struct Story {
    pub(crate) sight: TestSight,
    pub(crate) journey: Journey,
    pub(crate) now: Instant,
    pub(crate) rng: fastrand::Rng,
    /// Retries left in the budget.
    pub(crate) retries: u32,
    /// Requests whose turn it is to try a prediction.
    pub(crate) late_probes: u32,
    /// Number of the next request.
    pub(crate) ticket: u64,
}

impl Story {
    pub(crate) fn of(sight: TestSight) -> Self {
        let journey = Journey::new(*START, 3);
        let rng = fastrand::Rng::with_seed(1);
        Self { sight, journey, now: *START, rng, retries: 10, late_probes: 0, ticket: 0 }
    }

    /// Returns the next step for which time passes. Takes numbers, retries and probes before it, as
    /// a driver does.
    pub(crate) fn next(&mut self) -> Step {
        loop {
            let step = self.step();
            let Some(event) = self.take(&step) else { return step };
            self.tell(event);
        }
    }

    /// Carries out a step that only takes something.
    pub(crate) fn take(&mut self, step: &Step) -> Option<Event> {
        let take = |budget: &mut u32| {
            let left = *budget;
            *budget = left.saturating_sub(1);
            left > 0
        };
        match step {
            Step::TakeTicket => {
                self.ticket += 1;
                Some(Event::Ticket(self.ticket - 1))
            }
            Step::TakeRetry(_) => Some(Event::Retry { is_allowed: take(&mut self.retries) }),
            Step::TakeLateProbe => {
                Some(Event::LateProbe { is_allowed: take(&mut self.late_probes) })
            }
            _ => None,
        }
    }

    /// Returns the next step of the journey.
    pub(crate) fn step(&mut self) -> Step {
        let step = self.journey.next(&self.sight, self.now, &mut self.rng);
        let again = self.journey.next(&self.sight, self.now, &mut self.rng);
        assert_eq!(step, again, "a step holds until an event");
        step
    }

    pub(crate) fn tell(&mut self, event: Event) {
        self.journey.on(event, &self.sight, self.now);
    }
}

/// Checks a story step by step: each line has the step that the journey takes, and its result.
/// An attempt, `ask` or `forward`, is one line: the slot is taken without saying so, as are numbers,
/// retries and probes.
#[track_caller]
pub(crate) fn check(story: &mut Story, steps: &[(&str, Option<Event>)]) {
    for (number, (expected, event)) in steps.iter().enumerate() {
        let step = story.next();
        assert_eq!(short(&step), *expected, "step {number} of {steps:?}");
        let Some(event) = event else { continue };
        if matches!(step, Step::Ask { .. }) && *event != Event::NoSlot {
            story.tell(Event::Asked);
        }
        story.tell(*event);
    }
}

/// Checks a story as [`check`] does, with the steps that only take something.
#[track_caller]
pub(crate) fn check_each(story: &mut Story, steps: &[(&str, Option<Event>)]) {
    for (number, (expected, event)) in steps.iter().enumerate() {
        assert_eq!(short(&story.step()), *expected, "step {number} of {steps:?}");
        if let Some(event) = event {
            story.tell(*event);
        }
    }
}

/// A step in a few words.
pub(crate) fn short(step: &Step) -> String {
    match step {
        Step::Ask { attempt, connection: Connection::KeptOrNew } => {
            format!("ask {}", attempt.slot.index())
        }
        Step::Ask { attempt, connection: Connection::New } => {
            format!("ask {} anew", attempt.slot.index())
        }
        Step::TakeTicket => "take ticket".to_owned(),
        Step::TakeRetry(safety) => format!("take retry {safety:?}"),
        Step::TakeLateProbe => "take late probe".to_owned(),
        Step::Listen => "listen".to_owned(),
        Step::Hedge(attempt) => format!("hedge {}", attempt.slot.index()),
        Step::Forward { region, .. } => format!("forward {region}"),
        Step::Wait(_) => "wait".to_owned(),
        Step::Pause(pause) => format!("pause {}", pause.as_millis()),
        Step::StandIn => "stand in".to_owned(),
        Step::End(ending) => match ending {
            Ending::Shed { reason, .. } => format!("shed {}", reason.name()),
            Ending::SentAway { reason, .. } => format!("sent away {}", reason.name()),
            Ending::TooLate { reason, .. } => format!("too late {}", reason.name()),
            Ending::NoSlotInTime(reason) => format!("no slot {}", reason.name()),
            Ending::Refused(refused) => format!("refused {}", refused.refusal.name()),
            Ending::OutsideResidency(denial) => format!("outside residency {denial:?}"),
            Ending::Reply
            | Ending::HeldReply
            | Ending::LastFailure
            | Ending::ClientFault
            | Ending::EnginesDied
            | Ending::OnlyRegionGone => format!("end {ending:?}"),
        },
    }
}
