//! State machine of a stream that another place continues when its own breaks off.
//!
//! A [`ContinuedStream`] lives as long as the stream. Each try to continue the stream is a
//! [`Journey`](crate::Journey) of its own, without the places that broke it off. The driver calls
//! [`ContinuedStream::next`], carries out the step, and reports its result by
//! [`ContinuedStream::on`].

mod places;

use std::time::{Duration, Instant};

use spillway_types::{Deadline, End, RegionName, ReplicaName};

use crate::ending::Ending;
use crate::retry::RetrySafety;

pub use places::{StreamReplica, Unasked};

/// Pause before the next round of tries: a killed replica may be back soon, and a busy one may then
/// have a place.
const PAUSE: Duration = Duration::from_millis(100);
/// Rounds beyond the first whose tries may fail before the search is given up.
const ROUNDS_MAX: u32 = 3;

/// Rules for the continuations of one stream.
#[derive(Clone, Copy, Debug)]
pub struct ContinuationRules {
    /// Most continuations of the stream: its request may be the cause of the replicas' failures.
    pub count_max: u32,
    /// Tries in one round at most.
    pub tries_max: u32,
    /// True if only some engines can continue an answer that was begun, as in a chat.
    pub needs_engine: bool,
}

/// A stream, and the places that broke it off.
#[derive(Clone, Debug)]
pub struct ContinuedStream {
    rules: ContinuationRules,
    state: StreamState,
    /// Number of searches for a place that continues the stream.
    count: u32,
    /// Replicas that broke the stream off, in order. A new view numbers replicas anew, so that they
    /// are kept by name.
    broken: Vec<ReplicaName>,
    /// Regions that broke the stream off.
    lost: Vec<RegionName>,
}

#[derive(Clone, Debug)]
enum StreamState {
    /// A place serves the stream.
    // Streaming => (Trying | Over)
    Streaming,
    /// The request is sent once more, to continue the stream.
    // Trying => (Streaming | Trying | Pausing | Over)
    Trying(PlaceSearch),
    /// The next round of tries is about to come.
    // Pausing => Trying
    Pausing(PlaceSearch),
    /// The stream is not continued any more.
    Over(StreamEnd),
}

/// Search for a place that continues the stream.
#[derive(Clone, Debug)]
struct PlaceSearch {
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
    /// all other places.
    spares_lost: bool,
}

/// Act of the driver of a stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StreamStep {
    /// Relay the stream, and report [`StreamEvent::Broke`] if its place fails.
    Relay,
    /// Send the request on a journey that asks none of these places. Report
    /// [`StreamEvent::TimeOver`] if nothing has come of it by `until`.
    Try {
        /// Places that are not to be asked.
        unasked: Unasked,
        /// End of the search.
        until: Instant,
    },
    /// Pause, then report [`StreamEvent::Paused`].
    Pause(Duration),
    /// No place is sought any more: end the stream.
    End(StreamEnd),
}

/// Result of a step.
#[derive(Clone, Debug, PartialEq)]
pub enum StreamEvent {
    /// The place that served the stream failed.
    Broke(StreamBreak),
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

/// Failure of the place that served a stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StreamBreak {
    /// Place that failed; `None` if the stream had none.
    pub place: Option<StreamPlace>,
    /// Part of the stream that its client still lacks.
    pub rest: StreamRest,
}

/// Place that serves a stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StreamPlace {
    /// A replica of this region.
    Replica(ReplicaName),
    /// Another region.
    Region(RegionName),
}

/// Part of a stream that its client lacks when the place fails.
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

/// Cause of a stream's break that is a fault of its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BreakCause {
    /// The connection ended.
    Cut,
    /// No byte came for too long.
    Stalled,
    /// The replica sent an error event.
    Error,
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
    /// The retry budget is used up.
    Budget,
    /// No place is left that could continue the stream, now or later.
    NoPlaceLeft,
    /// No place could continue the stream in time.
    Late,
    /// The replicas that were asked failed.
    Failed,
}

/// Facts that the continuation of a stream goes by, at this moment.
pub trait StreamSight {
    /// Returns the replicas of this region in the order of their slots.
    fn replicas(&self) -> impl Iterator<Item = StreamReplica<'_>>;

    /// Returns the names of the other regions.
    fn regions(&self) -> impl Iterator<Item = &RegionName>;

    /// Returns the longest silence of a stream.
    fn silence_max(&self) -> Duration;

    /// Returns the request's deadline.
    fn deadline(&self) -> Deadline;

    /// Takes one retry from the budget. Returns false if that is used up.
    fn take_retry(&self, now: Instant) -> bool;
}

impl ContinuedStream {
    /// Creates the state of a stream that has just begun.
    #[must_use]
    pub fn new(rules: ContinuationRules) -> Self {
        let state = StreamState::Streaming;
        Self { rules, state, count: 0, broken: Vec::new(), lost: Vec::new() }
    }

    /// Returns the next step. Without an event in between, and with the same sight, it returns that
    /// step again.
    pub fn next<S: StreamSight>(&mut self, sight: &S, now: Instant) -> StreamStep {
        if let StreamState::Trying(search) = &self.state {
            match self.unasked(search, sight) {
                _ if now >= search.until => self.state = StreamState::Over(StreamEnd::Late),
                Some(unasked) => return StreamStep::Try { unasked, until: search.until },
                None => self.state = StreamState::Over(StreamEnd::NoPlaceLeft),
            }
        }
        match &self.state {
            // A search that goes on has returned its step above.
            StreamState::Streaming | StreamState::Trying(_) => StreamStep::Relay,
            StreamState::Pausing(search) => {
                StreamStep::Pause(PAUSE.min(search.until.saturating_duration_since(now)))
            }
            StreamState::Over(end) => StreamStep::End(*end),
        }
    }

    /// Takes the result of a step. Returns the safety of the retry that follows at once; `None` if
    /// none does.
    ///
    /// An event that does not fit the step that is under way changes nothing.
    pub fn on<S: StreamSight>(
        &mut self,
        event: StreamEvent,
        sight: &S,
        now: Instant,
    ) -> Option<RetrySafety> {
        match (std::mem::replace(&mut self.state, StreamState::Streaming), event) {
            (StreamState::Streaming, StreamEvent::Broke(broke)) => self.broke(broke, sight, now),
            // The state that stands in above is the right one: a place serves the stream again.
            (StreamState::Trying(_), StreamEvent::Continued) => {}
            (StreamState::Trying(_), StreamEvent::NoRoute) => self.end(StreamEnd::NoPlaceLeft),
            (StreamState::Trying(_), StreamEvent::TimeOver) => self.end(StreamEnd::Late),
            (StreamState::Trying(mut search), StreamEvent::OtherReply(replica)) => {
                search.tries += 1;
                // Without a name, the next try could not leave that place out.
                let has_tries = replica.is_some() && search.tries < self.rules.tries_max;
                let is_in_time = now < search.until;
                if has_tries && is_in_time && sight.take_retry(now) {
                    search.tried.extend(replica);
                    self.state = StreamState::Trying(search);
                    return Some(RetrySafety::Reset);
                }
                self.failed(search, sight, now);
            }
            (StreamState::Trying(search), StreamEvent::NoReply(ending)) => {
                if is_for_now(ending) {
                    // No place was asked, so this costs neither a round nor a retry: only the time
                    // ends the search.
                    self.state = StreamState::Pausing(search);
                } else {
                    self.failed(search, sight, now);
                }
            }
            (StreamState::Pausing(search), StreamEvent::Paused) => {
                let search =
                    PlaceSearch { tries: 0, tried: Vec::new(), spares_lost: false, ..search };
                self.state = StreamState::Trying(search);
            }
            (state, event) => {
                debug_assert!(false, "{event:?} while {state:?}");
                self.state = state;
            }
        }
        None
    }

    /// Begins a search for a place that continues the stream, if the rules and the budget allow one.
    fn broke<S: StreamSight>(&mut self, broke: StreamBreak, sight: &S, now: Instant) {
        let is_begun = match broke.rest {
            StreamRest::LastEvents => return self.end(StreamEnd::Complete),
            StreamRest::Unfit(reason) => return self.end(StreamEnd::Unfit(reason)),
            StreamRest::Whole => false,
            StreamRest::Text => true,
        };
        if self.count >= self.rules.count_max {
            return self.end(StreamEnd::Count);
        }
        // Last, so that a stream that the rules end uses up no retry.
        if !sight.take_retry(now) {
            return self.end(StreamEnd::Budget);
        }
        self.count += 1;
        match broke.place {
            Some(StreamPlace::Replica(name)) => self.broken.push(name),
            Some(StreamPlace::Region(name)) => self.lost.push(name),
            None => {}
        }
        let until = now + sight.silence_max().min(sight.deadline().remaining(now));
        self.state = StreamState::Trying(PlaceSearch {
            is_begun,
            until,
            tries: 0,
            rounds: 0,
            tried: Vec::new(),
            spares_lost: true,
        });
    }

    /// Ends a round of tries that failed: with a pause, or with the search.
    fn failed<S: StreamSight>(&mut self, mut search: PlaceSearch, sight: &S, now: Instant) {
        if now >= search.until {
            // Without time for another round, a retry would be wasted.
            self.end(StreamEnd::Late);
        } else if search.rounds < ROUNDS_MAX && sight.take_retry(now) {
            search.rounds += 1;
            self.state = StreamState::Pausing(search);
        } else {
            self.end(StreamEnd::Failed);
        }
    }

    fn end(&mut self, end: StreamEnd) {
        self.state = StreamState::Over(end);
    }
}

impl StreamEnd {
    /// Returns true if a place was sought: the replica's part had ended by then, and its own error
    /// event is not passed on any more.
    #[must_use]
    pub fn is_after_search(self) -> bool {
        match self {
            Self::NoPlaceLeft | Self::Late | Self::Failed => true,
            Self::Complete | Self::Unfit(_) | Self::Count | Self::Budget => false,
        }
    }
}

impl BreakCause {
    /// Returns the cause of a stream's end; `None` for an end that is no fault of its place.
    /// `is_told`: the replica sent an error event before.
    #[must_use]
    pub fn of(end: End, is_told: bool) -> Option<Self> {
        match end {
            End::Cut if is_told => Some(Self::Error),
            End::Cut => Some(Self::Cut),
            End::Stalled => Some(Self::Stalled),
            End::Complete
            | End::Answered
            | End::CancelledBeforeReply
            | End::CancelledInReply
            | End::DeadlinePassed => None,
        }
    }

    /// Returns the name in metrics.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Cut => "cut",
            Self::Stalled => "stalled",
            Self::Error => "error",
        }
    }
}

/// Returns true if a journey ended only since no place was open, which may change soon.
fn is_for_now(ending: Ending) -> bool {
    match ending {
        Ending::Shed { .. }
        | Ending::SentAway { .. }
        | Ending::NoPlaceInTime(_)
        | Ending::TooLate { .. }
        | Ending::Refused(_) => true,
        Ending::Reply
        | Ending::HeldReply
        | Ending::LastFailure
        | Ending::ClientFault
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
