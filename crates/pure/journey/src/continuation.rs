//! State machine of a stream that another target continues when its own breaks off.
//!
//! A [`ContinuedStream`] lives as long as the stream. Each try to continue the stream is a
//! [`Journey`](crate::Journey) of its own, without the targets that broke it off. The driver calls
//! [`ContinuedStream::next`], carries out the step, and reports its result by
//! [`ContinuedStream::on`]. The machine reads its surroundings through [`StreamSight`], which
//! changes nothing.

mod targets;

use std::time::{Duration, Instant};

use spillway_types::{Deadline, RegionName, ReplicaName};

use crate::ending::Ending;

pub use targets::{StreamReplica, Unasked};

/// Pause before the next round of tries: a killed replica may be back soon, and a busy one may then
/// have a target.
const PAUSE: Duration = Duration::from_millis(100);
/// Rounds beyond the first whose tries may fail before the search is given up.
const ROUNDS_MAX: u32 = 3;
/// Time for which a stream whose target is being drained may be held up by the search for another.
const MOVE_MAX: Duration = Duration::from_millis(300);
/// Engines that may die while they work on one request: it may be the cause.
pub(crate) const DEATHS_MAX: u8 = 2;

/// Rules for the continuations of one stream.
#[derive(Clone, Copy, Debug)]
pub struct ContinuationRules {
    /// Most continuations of the stream: its request may be the cause of the replicas' failures.
    pub count_max: u32,
    /// Tries in one round at most.
    pub tries_max: u32,
    /// True if only some engines can continue an answer that was begun, as in a chat.
    pub needs_engine: bool,
    /// Engines that died while they worked on the request, before its stream began.
    pub deaths: u8,
}

/// A stream, and the targets that broke it off.
#[derive(Clone, Debug)]
pub struct ContinuedStream {
    rules: ContinuationRules,
    state: StreamState,
    /// Number of searches for a target that continues the stream after a fault.
    count: u32,
    /// Engines that died while they worked on the request.
    deaths: u8,
    /// Replicas that broke the stream off, in order. A new view numbers replicas differently, so
    /// they are kept by name.
    broken: Vec<ReplicaName>,
    /// Regions that broke the stream off.
    lost: Vec<RegionName>,
}

#[derive(Clone, Debug)]
enum StreamState {
    /// A target serves the stream.
    // Streaming => (Retrying | Over)
    Streaming,
    /// A retry is being taken from the budget. The search goes on if there is one left.
    // Retrying => (Trying | Pausing | Over)
    Retrying { retry: StreamRetry, search: TargetSearch },
    /// The request is sent again, to continue the stream.
    // Trying => (Streaming | Retrying | Pausing | Over)
    Trying(TargetSearch),
    /// The next round of tries is about to come.
    // Pausing => Trying
    Pausing(TargetSearch),
    /// The stream is not continued any more.
    Over(StreamEnd),
}

/// Search for a target that continues the stream.
#[derive(Clone, Debug)]
struct TargetSearch {
    cause: BreakCause,
    /// True if the answer has begun, and has to be continued behind its text.
    is_begun: bool,
    /// End of the search: a stream may be silent for so long.
    until: Instant,
    /// Tries in this round.
    tries: u32,
    /// Rounds that failed.
    rounds: u32,
    /// Replicas that were asked in this round, without success.
    tried: Vec<ReplicaName>,
    /// True if regions that broke the stream off are left out: in the first round, which prefers
    /// all other targets.
    spares_lost: bool,
}

/// Act of the driver of a stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StreamStep {
    /// Relay the stream, and report [`StreamEvent::Broke`] if its target fails.
    Relay,
    /// Take a retry from the budget, and report [`StreamEvent::Retry`].
    TakeRetry(StreamRetry),
    /// Send the request on a journey that asks none of these targets. Report
    /// [`StreamEvent::TimeOver`] if nothing has come of it by `until`.
    Try {
        /// Targets that are not to be asked.
        unasked: Unasked,
        /// End of the search.
        until: Instant,
    },
    /// Pause, then report [`StreamEvent::Paused`].
    Pause(Duration),
    /// No target is sought any more: end the stream.
    End(StreamEnd),
}

/// Use of a retry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StreamRetry {
    /// First try of a search.
    Search,
    /// Another try in the same round, after a reply that is no stream.
    Try,
    /// Another round of tries, after a pause.
    Round,
}

/// Result of a step.
#[derive(Clone, Debug, PartialEq)]
pub enum StreamEvent {
    /// The target that served the stream failed.
    Broke(StreamBreak),
    /// The budget of retries was asked.
    Retry {
        /// True if a retry was taken; false if the budget is used up.
        is_allowed: bool,
    },
    /// A reply that continues the stream began.
    Continued,
    /// A reply began that is no stream. The replica of this region that sent it is named, so that
    /// another one can be asked.
    OtherReply(Option<ReplicaName>),
    /// The journey ended without a reply.
    NoReply(Ending),
    /// The time for the search is over.
    TimeOver,
    /// The request's route is gone.
    NoRoute,
    /// The pause is over.
    Paused,
}

/// Failure of the target that served a stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StreamBreak {
    /// Target that failed; `None` if the stream had none.
    pub target: Option<StreamTarget>,
    /// Part of the stream that its client still lacks.
    pub rest: StreamRest,
    /// Cause of the break.
    pub cause: BreakCause,
    /// True if the engine died with the request in it.
    pub is_death: bool,
}

/// Target that serves a stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StreamTarget {
    /// A replica of this region.
    Replica(ReplicaName),
    /// Another region.
    Region(RegionName),
}

/// Part of a stream that its client lacks when the target fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StreamRest {
    /// Nothing was sent: the request can be sent again as it was.
    Whole,
    /// A text was begun, which another replica can continue.
    Text,
    /// The last events, which the gateway can write itself.
    LastEvents,
    /// A part that no replica could continue exactly, for the reason of this name.
    Unfit(&'static str),
}

/// Cause of a stream's break.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BreakCause {
    /// The connection ended.
    Cut,
    /// No byte came for too long.
    Stalled,
    /// The replica sent an error event.
    Error,
    /// The replica aborted the request.
    Aborted,
    /// The region that served the stream fell silent.
    Lost,
    /// The target is being drained.
    Drained,
}

/// End of the continuations of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StreamEnd {
    /// The gateway writes the last events itself: the stream is complete.
    Complete,
    /// No replica could continue the stream exactly, for the reason of this name.
    Unfit(&'static str),
    /// The stream has had all its continuations.
    Count,
    /// Two engines died while they worked on the request, which may be the cause.
    Deaths,
    /// The retry budget is used up.
    Budget,
    /// No target is left that could continue the stream, now or later.
    NoTargetLeft,
    /// No target could continue the stream in time.
    Late,
    /// The replicas that were asked failed.
    Failed,
}

/// Facts that the continuation of a stream reads, at this moment. No method waits, and none has a
/// side effect.
pub trait StreamSight {
    /// Returns the replicas of this region in the order of their slots.
    fn replicas(&self) -> impl Iterator<Item = StreamReplica<'_>>;

    /// Returns the names of the other regions.
    fn regions(&self) -> impl Iterator<Item = &RegionName>;

    /// Returns the longest silence of a stream.
    fn silence_max(&self) -> Duration;

    /// Returns the request's deadline.
    fn deadline(&self) -> Deadline;
}

impl ContinuedStream {
    /// Creates the state of a stream that has just begun.
    #[must_use]
    pub fn new(rules: ContinuationRules) -> Self {
        Self {
            rules,
            state: StreamState::Streaming,
            count: 0,
            deaths: rules.deaths,
            broken: Vec::new(),
            lost: Vec::new(),
        }
    }

    /// Returns the number of engines that died while they worked on the request.
    #[must_use]
    pub fn deaths(&self) -> u8 {
        self.deaths
    }

    /// Notes engines that died in a journey to continue the stream; `deaths` counts all so far.
    pub fn note_deaths(&mut self, deaths: u8) {
        self.deaths = self.deaths.max(deaths);
    }

    /// Notes that a stream whose target is being drained stays there, since no other had room for it.
    pub fn stay(&mut self) {
        self.state = StreamState::Streaming;
        // It may go elsewhere later, and its own target serves it until then.
        self.broken.clear();
        self.lost.clear();
    }

    /// Returns the next step. Without an event in between, and with the same sight, it returns that
    /// step again.
    pub fn next<S: StreamSight>(&mut self, sight: &S, now: Instant) -> StreamStep {
        if let StreamState::Trying(search) = &self.state {
            match self.unasked(search, sight) {
                _ if now >= search.until => self.state = StreamState::Over(StreamEnd::Late),
                Some(unasked) => return StreamStep::Try { unasked, until: search.until },
                None => self.state = StreamState::Over(StreamEnd::NoTargetLeft),
            }
        }
        match &self.state {
            // A search that goes on has returned its step above.
            StreamState::Streaming | StreamState::Trying(_) => StreamStep::Relay,
            StreamState::Retrying { retry, .. } => StreamStep::TakeRetry(*retry),
            StreamState::Pausing(search) => {
                StreamStep::Pause(PAUSE.min(search.until.saturating_duration_since(now)))
            }
            StreamState::Over(end) => StreamStep::End(*end),
        }
    }

    /// Takes the result of a step.
    ///
    /// An event that does not fit the step that is under way changes nothing.
    pub fn on<S: StreamSight>(&mut self, event: StreamEvent, sight: &S, now: Instant) {
        match (std::mem::replace(&mut self.state, StreamState::Streaming), event) {
            (StreamState::Streaming, StreamEvent::Broke(broke)) => self.broke(broke, sight, now),
            (StreamState::Retrying { retry, search }, StreamEvent::Retry { is_allowed }) => {
                self.retry_was_asked(is_allowed, retry, search);
            }
            // The state that was put in above is the right one: a target serves the stream again.
            (StreamState::Trying(_), StreamEvent::Continued) => {}
            (StreamState::Trying(_), StreamEvent::NoRoute) => self.end(StreamEnd::NoTargetLeft),
            (StreamState::Trying(_), StreamEvent::TimeOver) => self.end(StreamEnd::Late),
            (StreamState::Trying(mut search), StreamEvent::OtherReply(replica)) => {
                search.tries += 1;
                // Without a name, the next try could not leave that target out.
                let has_tries = replica.is_some() && search.tries < self.rules.tries_max;
                let is_in_time = now < search.until;
                if has_tries && is_in_time {
                    search.tried.extend(replica);
                    self.take_retry(StreamRetry::Try, search);
                } else {
                    self.failed(search, now);
                }
            }
            (StreamState::Trying(_), StreamEvent::NoReply(Ending::EnginesDied)) => {
                self.end(StreamEnd::Deaths);
            }
            // The target still serves the stream.
            (StreamState::Trying(search), StreamEvent::NoReply(_))
                if search.cause == BreakCause::Drained =>
            {
                self.end(StreamEnd::Late);
            }
            (StreamState::Trying(search), StreamEvent::NoReply(ending)) => {
                if is_for_now(ending) {
                    // No target was asked, so this costs neither a round nor a retry: only the time
                    // ends the search.
                    self.state = StreamState::Pausing(search);
                } else {
                    self.failed(search, now);
                }
            }
            (StreamState::Pausing(search), StreamEvent::Paused) => {
                let search =
                    TargetSearch { tries: 0, tried: Vec::new(), spares_lost: false, ..search };
                self.state = StreamState::Trying(search);
            }
            (state, event) => {
                debug_assert!(false, "{event:?} while {state:?}");
                self.state = state;
            }
        }
    }

    /// Begins a search for a target that continues the stream, if the rules allow one and the budget
    /// does.
    fn broke<S: StreamSight>(&mut self, broke: StreamBreak, sight: &S, now: Instant) {
        let is_begun = match broke.rest {
            StreamRest::LastEvents => return self.end(StreamEnd::Complete),
            StreamRest::Unfit(reason) => return self.end(StreamEnd::Unfit(reason)),
            StreamRest::Whole => false,
            StreamRest::Text => true,
        };
        self.deaths += u8::from(broke.is_death);
        if self.deaths >= DEATHS_MAX {
            return self.end(StreamEnd::Deaths);
        }
        if broke.cause.is_fault() {
            if self.count >= self.rules.count_max {
                return self.end(StreamEnd::Count);
            }
            self.count += 1;
        }
        match broke.target {
            Some(StreamTarget::Replica(name)) => self.broken.push(name),
            Some(StreamTarget::Region(name)) => self.lost.push(name),
            None => {}
        }
        let longest = match broke.cause {
            BreakCause::Drained => MOVE_MAX,
            _ => sight.silence_max(),
        };
        let search = TargetSearch {
            cause: broke.cause,
            until: now + longest.min(sight.deadline().remaining(now)),
            is_begun,
            tries: 0,
            rounds: 0,
            tried: Vec::new(),
            spares_lost: true,
        };
        // Last, so that a stream that the rules end uses up no retry. All streams of a lost region
        // need another target at once: the room of their targets paces them, and not the budget.
        self.take_retry(StreamRetry::Search, search);
    }

    /// Asks the budget for a retry, unless the cause of the search needs none.
    fn take_retry(&mut self, retry: StreamRetry, search: TargetSearch) {
        if search.cause.is_fault() {
            self.state = StreamState::Retrying { retry, search };
        } else {
            self.retry_was_asked(true, retry, search);
        }
    }

    /// Takes the answer of the budget of retries.
    fn retry_was_asked(&mut self, is_allowed: bool, retry: StreamRetry, search: TargetSearch) {
        self.state = match (retry, is_allowed) {
            (StreamRetry::Search | StreamRetry::Try, true) => StreamState::Trying(search),
            (StreamRetry::Round, true) => StreamState::Pausing(search),
            (StreamRetry::Search, false) => StreamState::Over(StreamEnd::Budget),
            (StreamRetry::Try | StreamRetry::Round, false) => StreamState::Over(StreamEnd::Failed),
        };
    }

    /// Ends a round of tries that failed: with a pause, or with the search.
    fn failed(&mut self, mut search: TargetSearch, now: Instant) {
        if now >= search.until {
            // Without time for another round, a retry would be wasted.
            self.end(StreamEnd::Late);
        } else if search.rounds < ROUNDS_MAX {
            search.rounds += 1;
            self.take_retry(StreamRetry::Round, search);
        } else {
            self.end(StreamEnd::Failed);
        }
    }

    fn end(&mut self, end: StreamEnd) {
        self.state = StreamState::Over(end);
    }
}

impl StreamEnd {
    /// Returns true if a target was sought: the replica's part had ended by then, and its own error
    /// event is not passed on any more.
    #[must_use]
    pub fn is_after_search(self) -> bool {
        match self {
            Self::NoTargetLeft | Self::Late | Self::Failed => true,
            Self::Complete | Self::Unfit(_) | Self::Count | Self::Deaths | Self::Budget => false,
        }
    }
}

impl BreakCause {
    /// Returns true if the target failed: a retry like any other. Streams of a region that is lost or
    /// of a target that is being drained move all at once.
    #[must_use]
    pub fn is_fault(self) -> bool {
        !matches!(self, Self::Lost | Self::Drained)
    }

    /// Returns the name in metrics.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Cut => "cut",
            Self::Stalled => "stalled",
            Self::Error => "error",
            Self::Aborted => "aborted",
            Self::Lost => "lost",
            Self::Drained => "drained",
        }
    }
}

/// Returns true if a journey ended only since no target was open, which may change soon.
fn is_for_now(ending: Ending) -> bool {
    match ending {
        Ending::Shed { .. }
        | Ending::SentAway { .. }
        | Ending::NoSlotInTime(_)
        | Ending::TooLate { .. }
        | Ending::Refused(_) => true,
        Ending::Reply
        | Ending::HeldReply
        | Ending::LastFailure
        | Ending::ClientFault
        | Ending::EnginesDied
        | Ending::OnlyRegionGone
        | Ending::OutsideResidency(_) => false,
    }
}

#[cfg(test)]
mod property_test;
#[cfg(test)]
mod stories_test;
#[cfg(test)]
mod test_stream;
