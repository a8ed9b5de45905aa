//! Signs: observations of a replica by its traffic, passed on as soon as they are made.

use std::time::{Duration, Instant};

use crate::{LoadReport, ModelName, ReplicaName, TokenCounts};

/// An observation made while serving a request. A request leaves several: one for each failed
/// attempt, one when a reply begins, one when it ends.
#[derive(Clone, Debug)]
pub struct Sign {
    /// The replica that was asked.
    pub replica: ReplicaName,
    /// The model that was asked for; `None` on routes without models.
    pub model: Option<ModelName>,
    /// Time of the observation.
    pub at: Instant,
    /// The observation itself.
    pub kind: SignKind,
}

/// Kind of a [`Sign`].
#[derive(Clone, Debug)]
pub enum SignKind {
    /// A reply began that is neither a fault nor backpressure. Errors that blame the request (4xx)
    /// count as this: the replica did its work.
    Answered {
        /// Time from sending the request to the first byte of the reply's body.
        after: Duration,
        /// Form of the reply.
        form: ReplyForm,
        /// Measure of the replica's speed; `None` if the reply shows none, or not yet.
        worked: Option<Worked>,
    },
    /// The replica refused for now (429, 503, `RESOURCE_EXHAUSTED`): busy, not broken.
    Busy {
        /// Time that the replica asked to be left alone; `None` if it did not say.
        retry_after: Option<Duration>,
    },
    /// The attempt or the reply failed through the replica's fault.
    Failed(SignFault),
    /// A reply that had begun well reached its end.
    Finished {
        /// Tokens, if the reply reported them.
        tokens: TokenCounts,
        /// Measure of the replica's speed by a reply in one piece, whose length is known now, or by
        /// the tokens of a stream behind its first one.
        worked: Option<Worked>,
    },
    /// The replica replied that it does not have the model.
    LacksModel,
    /// The replica sent a load report along with a reply (ORCA).
    Reported(Box<LoadReport>),
}

/// Form of a reply that began.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReplyForm {
    /// A stream of events, of a status of success: its first byte is about its first token.
    Stream,
    /// A reply in one piece, of a status of success: it begins when all of it is generated.
    Whole,
    /// An error.
    Error,
}

/// Duration of a reply with the amount of work done in it, so that unlike replies can be compared:
/// one has a word and another a thousand, one prompt is cached and another is new and long.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Worked {
    /// Time from sending the request to the first byte of the reply's body.
    pub after: Duration,
    /// Work done in that time, in units of about one generated token. At least 1.
    pub steps: f32,
    /// Part of the reply that this measures. Unlike parts are not compared, since their times
    /// consist of different work.
    pub part: WorkedPart,
}

/// Part of a reply whose speed is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum WorkedPart {
    /// A stream until its first token: mostly the reading of the prompt.
    FirstToken,
    /// A stream from its first token to its last.
    NextTokens,
    /// A reply in one piece.
    Whole,
}

/// Manner in which a replica failed a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum SignFault {
    /// No connection: refused or unreachable.
    Connect,
    /// No answer to an attempt to connect in time.
    ConnectTimeout,
    /// The connection broke before a reply.
    Reset,
    /// The reply was not HTTP.
    BadReply,
    /// No reply began in time.
    Silent,
    /// A 5xx other than 503, or a gRPC status of that meaning.
    ServerError,
    /// The engine reported that it is dying or draining: it fails every new request.
    EngineGone,
    /// The reply broke off in the middle.
    Cut,
    /// The reply stopped in the middle, with the connection open.
    Stalled,
}

impl SignFault {
    /// Returns true if the replica did not answer, which is all that is known: it may be dead, cut
    /// off, or merely busy.
    #[must_use]
    pub fn is_silence(self) -> bool {
        matches!(self, Self::ConnectTimeout | Self::Silent | Self::Stalled)
    }

    /// Returns true if the fault proves that the replica answered, however badly.
    #[must_use]
    pub fn is_answer(self) -> bool {
        !self.is_silence() && !matches!(self, Self::Connect | Self::Reset)
    }

    /// Returns the fault in words, for people.
    #[must_use]
    pub fn words(self) -> &'static str {
        match self {
            Self::Connect => "no connection",
            Self::ConnectTimeout => "no connection in time",
            Self::Reset => "the connection broke before the reply",
            Self::BadReply => "the reply was not HTTP",
            Self::Silent => "no reply in time",
            Self::ServerError => "server error (5xx)",
            Self::EngineGone => "its engine reported that it ends",
            Self::Cut => "the reply broke off",
            Self::Stalled => "the reply stopped",
        }
    }

    /// Returns the name in metrics.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Connect => "connect",
            Self::ConnectTimeout => "connect_timeout",
            Self::Reset => "reset",
            Self::BadReply => "bad_reply",
            Self::Silent => "silent",
            Self::EngineGone => "engine_gone",
            Self::ServerError => "server_error",
            Self::Cut => "cut",
            Self::Stalled => "stalled",
        }
    }
}
