//! Stream of a request whose reply has begun, at the node that its client asked.

use std::time::{Duration, Instant};

use spillway_journey::{
    BreakCause, ContinuationRules, ContinuedStream, FailureForm, Reply, ReplyRules, ReplySource,
    StreamReplica, StreamSight,
};
use spillway_types::{Deadline, RegionName, ReplicaName, ReplicaSlot};

use crate::Time;

/// Longest silence of a stream, by default in the gateway.
const IDLE: Duration = Duration::from_secs(60);
/// Longest time to the first byte, by default in the gateway.
const FIRST_BYTE: Duration = Duration::from_secs(600);
/// Most continuations of one stream, by default in the gateway.
const CONTINUATIONS_MAX: u32 = 3;
/// Tries in one round at most, by default in the gateway.
const TRIES_MAX: u32 = 3;

/// Reply that is sent to the client, and the parts that serve it.
///
/// Its parts are requests of their own: the first is the client's request itself, and each try to
/// continue the stream is another one.
#[derive(Debug)]
pub(super) struct Stream {
    pub(super) reply: Reply,
    pub(super) continued: ContinuedStream,
    /// Part that serves the stream, or that served it last.
    pub(super) source: usize,
    /// Part that is sent to another target; `None` if none is in transit.
    pub(super) seeking: Option<usize>,
    /// Cause of the last search.
    pub(super) cause: BreakCause,
    /// Moment on the agenda at which the reply is judged by time; `None` if there is none.
    pub(super) due: Option<Time>,
    /// Tokens of the client before the source's first one.
    base: u32,
    /// Tokens that the source sent while it was not read.
    held: u32,
    /// End of the source that came while it was not read.
    pub(super) held_end: Option<SourceEnd>,
    /// Moment at which the last token came.
    heard: Time,
    pub(super) record: StreamRecord,
}

/// End of a part of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SourceEnd {
    /// The part generated all of its tokens.
    Whole,
    /// The target failed.
    Broke,
}

/// Stream of one request, as its client got it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct StreamRecord {
    /// Tokens that came.
    pub tokens: u32,
    /// True if each token came once, and in order.
    pub is_exact: bool,
    /// Longest time without a token in milliseconds, after the first one.
    pub silence_ms: f64,
    /// Continuations after a target failed.
    pub continuations: u32,
    /// Moves away from a target that was being drained.
    pub moves: u32,
    /// Retries that the continuations took from the budget.
    pub retries: u32,
    /// Engines that died while they worked on the request.
    pub deaths: u8,
}

impl Stream {
    /// Creates the stream of a request whose reply begins now.
    pub(super) fn new(
        request: usize,
        source: ReplySource,
        deadline: Deadline,
        (now, instant): (Time, Instant),
    ) -> Self {
        let rules = ReplyRules {
            form: FailureForm::Events,
            first_byte: FIRST_BYTE,
            idle: IDLE,
            deadline: deadline.at(),
            keep_alive: None,
        };
        let continued = ContinuedStream::new(ContinuationRules {
            count_max: CONTINUATIONS_MAX,
            tries_max: TRIES_MAX,
            needs_engine: false,
            deaths: 0,
        });
        Self {
            reply: Reply::new(rules, source, true, instant, instant),
            continued,
            source: request,
            seeking: None,
            cause: BreakCause::Cut,
            due: None,
            base: 0,
            held: 0,
            held_end: None,
            heard: now,
            record: StreamRecord {
                tokens: 0,
                is_exact: true,
                silence_ms: 0.0,
                continuations: 0,
                moves: 0,
                retries: 0,
                deaths: 0,
            },
        }
    }

    /// Takes the token of this number in its source. Returns false if the source is not read now, and
    /// the token waits.
    pub(super) fn take(&mut self, number: u32, now: Time) -> bool {
        if self.reply.seeks() {
            self.held += 1;
            return false;
        }
        let record = &mut self.record;
        let gap_ms = now.ms_since(self.heard);
        record.silence_ms = record.silence_ms.max(gap_ms);
        record.is_exact &= self.base + number == record.tokens + 1;
        record.tokens += 1;
        self.heard = now;
        true
    }

    /// Takes a token that waited. Returns false if there was none.
    pub(super) fn take_held(&mut self, now: Time) -> bool {
        let Some(held) = self.held.checked_sub(1) else { return false };
        self.held = held;
        self.take(self.record.tokens + 1 - self.base, now)
    }

    /// Goes on with a part that continues the stream. Returns the part before it.
    pub(super) fn continue_with(&mut self, part: usize) -> usize {
        match self.cause {
            BreakCause::Drained => self.record.moves += 1,
            _ => self.record.continuations += 1,
        }
        self.seeking = None;
        (self.base, self.held, self.held_end) = (self.record.tokens, 0, None);
        std::mem::replace(&mut self.source, part)
    }
}

/// Facts of one moment that the continuation of a stream reads.
#[derive(Debug)]
pub(super) struct StreamFacts {
    pub(super) replicas: Vec<ReplicaName>,
    pub(super) regions: Vec<RegionName>,
    pub(super) deadline: Deadline,
}

impl StreamSight for StreamFacts {
    fn replicas(&self) -> impl Iterator<Item = StreamReplica<'_>> {
        (0..).zip(&self.replicas).map(|(slot, name)| StreamReplica {
            slot: ReplicaSlot(slot),
            name,
            serves_model: true,
            continues_chats: true,
        })
    }

    fn regions(&self) -> impl Iterator<Item = &RegionName> {
        self.regions.iter()
    }

    fn silence_max(&self) -> Duration {
        IDLE
    }

    fn deadline(&self) -> Deadline {
        self.deadline
    }
}
