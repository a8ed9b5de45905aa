//! State machine of a journey.

mod choose;
mod consider;
mod patience;
mod refusals;
mod slots;
mod weigh;

use std::time::{Duration, Instant};

use spillway_route::{Attempt, PlanError, ShedReason, SpillReason};
use spillway_types::{RegionName, ReplicaSlot};

use crate::continuation::{DEATHS_MAX, Unasked};
use crate::ending::{Ending, RetryTime};
use crate::event::Event;
use crate::notes::Notes;
use crate::retry::RetrySafety;
use crate::sight::Sight;
use crate::standing::{Claim, Position, QueueStanding};
use crate::step::{Connection, Step, WaitTerms};
use refusals::RegionRefusals;

/// Journey of one request through a node.
///
/// The driver alternates: [`Journey::next`] returns a step, [`Journey::on`] takes its result. Neither
/// has an effect on anything but the journey.
#[derive(Clone, Debug)]
pub struct Journey {
    /// Attempts at most, over all models and regions.
    attempts_max: u32,
    /// Moment at which the request's head arrived.
    started: Instant,
    state: JourneyState,
    standing: QueueStanding,
    /// Replicas of the view that are not asked again.
    tried: Vec<ReplicaSlot>,
    /// Other regions that are left out or did not take the request.
    refusals: RegionRefusals,
    /// Number of nodes of other regions that were about to end.
    leaving: u32,
    attempts: u32,
    /// Attempts for the model that the request names now.
    attempts_of_model: u32,
    /// Slots in a row that others took since the plan was made.
    places_lost: u32,
    /// Number of the request in its group; `None` until one is needed. It is taken once: retries
    /// with numbers of their own would send the first attempt of every request to the same one of two
    /// replicas.
    ticket: Option<u64>,
    /// Replica whose kept connection broke. That says little about the replica: if no other one can
    /// be asked, it is asked again on a new connection.
    retry_on_new_connection: Option<Attempt>,
    /// True once limits that are still being learned do not hold the request back any more.
    is_past_guesses: bool,
    has_held_reply: bool,
    has_failed: bool,
    /// True if the request must not be sent anywhere else: it may be half done, its body is gone, or it
    /// continues a stream.
    is_bound: bool,
    /// Engines that died while they worked on the request.
    deaths: u8,
    /// Moment at which the first replica takes requests again, if all asked for a pause.
    busy_until: Option<Instant>,
    /// Reason for which the first model could not be asked any more.
    refusal: Option<PlanError>,
    /// Leading blocks of the prompt at the replica that holds most; `None` if the policy does not
    /// use caches.
    cached_longest: Option<u32>,
    /// Observations since they were last taken.
    notes: Notes,
}

/// Step that the driver has not reported on yet, if there is one.
#[derive(Clone, Debug, PartialEq)]
enum JourneyState {
    /// No step is under way: the next one has to be decided.
    // Planning => (Numbering | Probing | Placing | Forwarding | Waiting | Pausing | Renaming | Over)
    Planning,
    /// A number is being taken, by which replicas take turns.
    // Numbering => Planning
    Numbering,
    /// The turn to try a prediction is being taken: the first token is predicted to come too late
    /// from this attempt.
    // Probing => (Placing | Pausing | Renaming | Over)
    Probing { attempt: Attempt, reason: ShedReason, late_ms: f32 },
    /// A slot at a replica is being taken.
    // Placing => (Asking | Pausing | Over)
    Placing { attempt: Attempt, connection: Connection },
    /// A replica is asked.
    // Asking => (Planning | Silent | Retrying | Over)
    Asking(Attempt),
    /// The replica has been silent for long, and a second one may be asked.
    // Silent => (Listening | Hedging)
    Silent(Attempt),
    /// A slot at a second replica is being taken.
    // Hedging => Listening
    Hedging { first: Attempt, second: Attempt },
    /// The driver asks one replica or two, and no more.
    // Listening => (Planning | Retrying | Over)
    Listening(Attempt),
    /// Another region is asked.
    // Forwarding => (Planning | Retrying | Over)
    Forwarding { region: RegionName, reason: Option<SpillReason> },
    /// A retry is being taken from the budget. The journey ends as `otherwise` if that is used up.
    // Retrying => (Planning | Over)
    Retrying { safety: RetrySafety, otherwise: Ending },
    /// The request waits in the queue.
    // Waiting => (Planning | Over)
    Waiting(WaitTerms),
    /// The request waits for a moment, outside the queue.
    // Pausing => Planning
    Pausing(Duration),
    /// The driver changes the request to another model.
    // Renaming => Planning
    Renaming,
    /// The journey has ended.
    Over(Ending),
}

impl JourneyState {
    /// Returns true while a replica is asked.
    fn is_asking(&self) -> bool {
        matches!(self, Self::Asking(_) | Self::Silent(_) | Self::Listening(_))
    }
}

impl Journey {
    /// Creates the journey of a request whose head arrived at `started`, with at most
    /// `attempts_max` attempts over all models and regions.
    #[must_use]
    pub fn new(started: Instant, attempts_max: u32) -> Self {
        Self {
            attempts_max,
            started,
            state: JourneyState::Planning,
            standing: QueueStanding::default(),
            tried: Vec::new(),
            refusals: RegionRefusals::default(),
            leaving: 0,
            attempts: 0,
            attempts_of_model: 0,
            places_lost: 0,
            ticket: None,
            retry_on_new_connection: None,
            is_past_guesses: false,
            has_held_reply: false,
            has_failed: false,
            is_bound: false,
            deaths: 0,
            busy_until: None,
            refusal: None,
            cached_longest: None,
            notes: Notes::default(),
        }
    }

    /// Leaves out replicas and regions from the beginning: those that cannot continue a stream which
    /// broke off.
    #[must_use]
    pub fn without(mut self, unasked: Unasked) -> Self {
        self.tried = unasked.replicas;
        self.refusals = RegionRefusals::without(unasked.regions);
        self.is_bound = true;
        self
    }

    /// Notes engines that died while they worked on the request before this journey.
    #[must_use]
    pub fn after_deaths(mut self, deaths: u8) -> Self {
        self.deaths = deaths;
        self
    }

    /// Returns the number of engines that died while they worked on the request. After a death the
    /// request has to be sent on new connections: the break of a kept one could not be
    /// distinguished from another death.
    #[must_use]
    pub fn deaths(&self) -> u8 {
        self.deaths
    }

    /// Notes that the request was promised a slot when it was shed earlier, and came at the time
    /// promised. Call it before the first [`Journey::next`].
    pub fn redeem_promise(&mut self) {
        self.standing.claim = Claim::Promise;
        self.standing.came_when_promised = true;
    }

    /// Renames its replicas after a change of the view: `rename` returns the slot of each replica
    /// that is still there.
    pub fn follow_view(&mut self, rename: impl Fn(ReplicaSlot) -> Option<ReplicaSlot>) {
        self.tried = self.tried.iter().filter_map(|slot| rename(*slot)).collect();
        let again = self.retry_on_new_connection.take();
        self.retry_on_new_connection =
            again.and_then(|attempt| Some(Attempt { slot: rename(attempt.slot)?, ..attempt }));
    }

    /// Takes the observations since the last call. Call it after each [`Journey::next`], which makes
    /// them.
    #[must_use]
    pub fn take_notes(&mut self) -> Notes {
        std::mem::take(&mut self.notes)
    }

    /// Returns the position in this node's queue.
    #[must_use]
    pub fn position(&self) -> Position {
        self.standing.position
    }

    /// Returns the claim to go before newcomers.
    #[must_use]
    pub fn claim(&self) -> Claim {
        self.standing.claim
    }

    /// Returns when the request first began to wait; `None` if it never did.
    #[must_use]
    pub fn waits_since(&self) -> Option<Instant> {
        self.standing.since
    }

    /// Returns when the first replica takes requests again; `None` unless all have asked for a
    /// pause.
    #[must_use]
    pub fn busy_until(&self) -> Option<Instant> {
        self.busy_until
    }

    /// Returns the leading blocks of the prompt at the replica that holds most, as last looked up;
    /// `None` if the policy does not read caches.
    #[must_use]
    pub fn cached_longest(&self) -> Option<u32> {
        self.cached_longest
    }

    /// Returns the end of the journey; `None` while it goes on.
    #[must_use]
    pub fn ending(&self) -> Option<Ending> {
        match self.state {
            JourneyState::Over(ending) => Some(ending),
            _ => None,
        }
    }

    /// Returns true if the request may be sent to a slot that the journey knows nothing of.
    pub(crate) fn can_go_elsewhere(&self) -> bool {
        !self.is_bound
    }

    /// Returns the attempts made so far, with those at other regions that may have begun to work.
    #[must_use]
    pub fn attempts(&self) -> u32 {
        self.attempts
    }

    /// Returns true if a second replica may be asked when the first is silent for long: then
    /// [`Event::Silent`] is to be reported.
    #[must_use]
    pub fn may_hedge<S: Sight>(&self, sight: &S) -> bool {
        matches!(self.state, JourneyState::Asking(_)) && self.attempts == 1 && sight.is_repeatable()
    }

    /// Returns the next step. Without an event in between it returns that step again.
    pub fn next<S: Sight>(&mut self, sight: &S, now: Instant, rng: &mut fastrand::Rng) -> Step {
        match self.state {
            JourneyState::Planning => self.choose(sight, now, rng),
            JourneyState::Silent(first) => self.choose_second(first, sight, now, rng),
            _ => {}
        }
        match &self.state {
            JourneyState::Numbering => Step::TakeTicket,
            JourneyState::Retrying { safety, .. } => Step::TakeRetry(*safety),
            JourneyState::Probing { .. } => Step::TakeLateProbe,
            JourneyState::Placing { attempt, connection } => {
                Step::Ask { attempt: *attempt, connection: *connection }
            }
            JourneyState::Hedging { second, .. } => Step::Hedge(*second),
            JourneyState::Forwarding { region, reason } => {
                Step::Forward { region: region.clone(), reason: *reason }
            }
            JourneyState::Waiting(terms) => Step::Wait(*terms),
            JourneyState::Pausing(pause) => Step::Pause(*pause),
            JourneyState::Renaming => Step::StandIn,
            JourneyState::Over(ending) => Step::End(*ending),
            JourneyState::Planning
            | JourneyState::Asking(_)
            | JourneyState::Silent(_)
            | JourneyState::Listening(_) => Step::Listen,
        }
    }

    /// Takes the result of a step.
    ///
    /// An event that does not fit the step that is under way changes nothing.
    pub fn on<S: Sight>(&mut self, event: Event, sight: &S, now: Instant) {
        match (std::mem::replace(&mut self.state, JourneyState::Planning), event) {
            // The state that was put in above is the right one: now the request is planned.
            (JourneyState::Numbering, Event::Ticket(ticket)) => self.ticket = Some(ticket),
            (JourneyState::Probing { attempt, .. }, Event::LateProbe { is_allowed: true }) => {
                self.ask(attempt, Connection::KeptOrNew, sight);
            }
            (
                JourneyState::Probing { reason, late_ms, .. },
                Event::LateProbe { is_allowed: false },
            ) => self.too_late(reason, late_ms, sight, now),
            // Another request took the last slot since the plan was made. The replica was not asked,
            // so it may be as soon as it has a slot again.
            (JourneyState::Placing { attempt, connection }, Event::NoSlot) => {
                match connection {
                    Connection::KeptOrNew => self.tried.retain(|slot| *slot != attempt.slot),
                    // The replica was asked once: it may be asked again on a new connection alone.
                    Connection::New => self.retry_on_new_connection = Some(attempt),
                }
                self.pause_without_place(sight, now);
            }
            (JourneyState::Placing { attempt, .. }, Event::Asked) => self.begin(attempt),
            (JourneyState::Asking(attempt), Event::Silent) => {
                self.state = JourneyState::Silent(attempt);
            }
            (JourneyState::Hedging { first, second }, Event::Hedged { is_asked }) => {
                self.hedged(first, second, is_asked);
            }
            (
                JourneyState::Asking(_) | JourneyState::Silent(_) | JourneyState::Listening(_),
                Event::Replied { status, can_repeat },
            ) => {
                let safety = status.safety(sight.is_idempotent());
                self.retry_or(Ending::Reply, safety.if_possible(can_repeat));
            }
            (
                JourneyState::Asking(attempt)
                | JourneyState::Silent(attempt)
                | JourneyState::Listening(attempt),
                Event::Failed { safety, is_fault, was_kept, can_repeat, is_death },
            ) => {
                self.retry_on_new_connection = was_kept.then_some(attempt);
                let safety = safety.with_key(sight.is_idempotent(), is_fault);
                self.attempt_failed(safety.if_possible(can_repeat), is_death, sight, now);
            }
            (state, Event::LacksModel { can_repeat }) if state.is_asking() => {
                self.lacks_model(can_repeat);
            }
            (JourneyState::Retrying { otherwise, .. }, Event::Retry { is_allowed }) => {
                self.retry_was_asked(is_allowed, otherwise);
                self.wait_for_start_instead(otherwise, sight, now);
            }
            // No other replica would fare better with this client.
            (_, Event::ClientFault) => self.end(Ending::ClientFault),
            (JourneyState::Forwarding { .. }, Event::RegionReplied) => self.end(Ending::Reply),
            (
                JourneyState::Forwarding { region, .. },
                Event::RegionFailed { failure, can_repeat },
            ) => self.region_failed(region, failure, can_repeat, sight, now),
            (JourneyState::Waiting(terms), event) => self.waited(terms, event, sight, now),
            // The state that was put in above is the right one: the request is planned again.
            (JourneyState::Pausing(_), Event::Paused) => {}
            (JourneyState::Renaming, Event::StoodIn { is_renamed }) => {
                if is_renamed {
                    self.change_model();
                }
            }
            (state, event) => {
                debug_assert!(false, "{event:?} while {state:?}");
                self.state = state;
            }
        }
    }

    /// Takes the failure of an attempt that may be repeated so safely, and in which an engine may have
    /// died.
    fn attempt_failed<S: Sight>(
        &mut self,
        safety: RetrySafety,
        is_death: bool,
        sight: &S,
        now: Instant,
    ) {
        self.has_failed = true;
        self.deaths += u8::from(is_death);
        if self.deaths >= DEATHS_MAX {
            // Whatever replied before, the client has to learn that its request may kill.
            self.state = JourneyState::Over(Ending::EnginesDied);
            return;
        }
        self.retry_or(Ending::LastFailure, safety);
        self.wait_for_start_instead(Ending::LastFailure, sight, now);
    }

    /// Takes the result of a wait in the queue.
    fn waited<S: Sight>(&mut self, terms: WaitTerms, event: Event, sight: &S, now: Instant) {
        match event {
            Event::Turn { due } => {
                self.standing.position = Position::AtTurn;
                self.standing.claim = Claim::Turn(due);
                self.refusals.forget(now);
            }
            Event::SentAway { reason, retry_after } => {
                // The queue knows the end of the longest wait as a deadline.
                let is_early = reason == ShedReason::Late && now < sight.inquiry().deadline.at();
                let reason = if is_early { terms.over } else { reason };
                // No slot comes free before regions that all refused may have room again.
                let retry_after = RetryTime::at_least(retry_after, self.not_before(sight), now);
                self.end(Ending::SentAway { reason, retry_after });
            }
            Event::QueueFull => self.shed(ShedReason::QueueFull, 0.0, sight),
            Event::Paused => self.refusals.forget(now),
            event => {
                debug_assert!(false, "{event:?} while {terms:?}");
                self.state = JourneyState::Waiting(terms);
            }
        }
    }

    /// Notes that the request has a slot at a replica.
    fn begin(&mut self, attempt: Attempt) {
        self.standing.position = Position::Outside;
        self.places_lost = 0;
        self.count_attempt();
        self.state = JourneyState::Asking(attempt);
    }

    fn hedged(&mut self, first: Attempt, second: Attempt, is_asked: bool) {
        if is_asked {
            self.tried.push(second.slot);
            self.count_attempt();
        }
        self.state = JourneyState::Listening(first);
    }

    fn count_attempt(&mut self) {
        self.attempts += 1;
        self.attempts_of_model += 1;
    }

    /// Goes on without a replica that does not have the model. The request is planned again, which the
    /// budget of retries is not asked for: each replica says so once, and none has worked.
    fn lacks_model(&mut self, can_repeat: bool) {
        self.has_failed = true;
        // The attempt does not count.
        self.attempts_max = self.attempts_max.saturating_add(1);
        if !can_repeat {
            self.end(Ending::LastFailure);
        }
    }

    /// Asks the budget for a retry if the rules allow one; otherwise ends the journey.
    fn retry_or(&mut self, otherwise: Ending, safety: RetrySafety) {
        self.is_bound |= safety == RetrySafety::Never;
        // The budget is asked last, so that a retry that the rules forbid does not use it up.
        if self.attempts >= self.attempts_max || safety == RetrySafety::Never {
            return self.end(otherwise);
        }
        self.state = JourneyState::Retrying { safety, otherwise };
    }

    /// Takes the answer of the budget of retries. An allowed retry is planned like a new request.
    fn retry_was_asked(&mut self, is_allowed: bool, otherwise: Ending) {
        if !is_allowed {
            return self.end(otherwise);
        }
        self.has_held_reply |= otherwise == Ending::Reply;
    }

    /// Changes to the stand-in model. Numbers, kept connections and claims of the model before are
    /// dropped.
    fn change_model(&mut self) {
        self.ticket = None;
        self.retry_on_new_connection = None;
        self.attempts_of_model = 0;
        self.standing.leave_model();
    }

    /// Ends the journey. A held error reply of a replica says more than an error of the gateway.
    fn end(&mut self, ending: Ending) {
        let is_worse = ending.is_error() && self.has_held_reply;
        self.state = JourneyState::Over(if is_worse { Ending::HeldReply } else { ending });
    }
}

#[cfg(test)]
mod decision_test;
#[cfg(test)]
mod property_test;
#[cfg(test)]
mod stories;
#[cfg(test)]
pub(crate) mod test_sight;
#[cfg(test)]
mod walk_test;
