//! What traffic shows about a replica, told as soon as it is seen.

use std::time::{Duration, Instant};

use crate::{LoadReport, ModelName, ReplicaName, TokenCounts};

/// One observation made while serving a request. A request leaves several: one for each attempt
/// that failed, one when a reply begins, one when it ends.
#[derive(Clone, Debug)]
pub struct Sign {
    /// The replica that was asked.
    pub replica: ReplicaName,
    /// The model that was asked for; `None` on routes without models.
    pub model: Option<ModelName>,
    /// When it was seen.
    pub at: Instant,
    /// What was seen.
    pub kind: SignKind,
}

/// What a sign says.
#[derive(Clone, Debug)]
pub enum SignKind {
    /// A reply began that is neither a fault nor back-pressure. Errors that blame the request (4xx)
    /// count as this: the replica did its work.
    Answered {
        /// From sending the request to the first byte of the reply's body.
        after: Duration,
        /// What that says of its speed; `None` if nothing, or not yet.
        worked: Option<Worked>,
    },
    /// The replica refused for now (429, 503, `RESOURCE_EXHAUSTED`): it is busy, not broken.
    Busy {
        /// How long it asked to be left alone.
        retry_after: Option<Duration>,
    },
    /// The attempt or the reply failed through the replica's fault.
    Failed(Fault),
    /// A reply that had begun well reached its end.
    Finished {
        /// Tokens, where the reply told them.
        tokens: TokenCounts,
        /// What a reply in one piece says of its speed, now that it is known how long it is.
        worked: Option<Worked>,
    },
    /// The replica told its load along with a reply (ORCA).
    Reported(Box<LoadReport>),
}

/// How long a reply took and for what, so that unlike ones can be compared: one answer has a word
/// and another a thousand, and one prompt was read before while another is new and long.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Worked {
    /// From sending the request to the first byte of the reply's body.
    pub after: Duration,
    /// How much was done in that time, in about what it takes to generate one token. At least 1.
    pub steps: f32,
    /// The reply is sent as it is made. What such a time consists of is another thing than where a
    /// reply comes in one piece, and the two are not compared.
    pub is_stream: bool,
}

/// How a replica failed a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Fault {
    /// No connection: refused, unreachable or not in time.
    Connect,
    /// The connection broke before a reply.
    Reset,
    /// What came back was not HTTP.
    BadReply,
    /// A reply did not begin in time.
    Silent,
    /// A 5xx that is not 503, or a gRPC status that says the same.
    ServerError,
    /// The reply broke off in the middle.
    Cut,
    /// The reply stopped in the middle, with the connection open.
    Stalled,
}

impl Fault {
    /// Name as it stands in metrics.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Connect => "connect",
            Self::Reset => "reset",
            Self::BadReply => "bad_reply",
            Self::Silent => "silent",
            Self::ServerError => "server_error",
            Self::Cut => "cut",
            Self::Stalled => "stalled",
        }
    }
}
