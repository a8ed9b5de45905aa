//! How a request ended: the one record that the data path leaves behind.

use std::sync::Arc;
use std::time::Duration;

use crate::{
    ArmName, BlockHashes, GapHistogram, ModelName, Prediction, RegionName, ReplicaName, RouteName,
    TenantName,
};

/// One finished request, successful or not. Feeds metrics now and latency models later.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// The route that matched; `None` if none did.
    pub route: Option<RouteName>,
    /// The model that served, aliases resolved; `None` where unknown or not asked for.
    pub model: Option<ModelName>,
    /// The arm of the split that the client asked for; `None` if it asked for no split.
    pub arm: Option<Arc<SplitArm>>,
    /// The model that could not serve, if [`Outcome::model`] did in its place.
    pub fallback_for: Option<ModelName>,
    /// The client's tenant; `None` if it has none.
    pub tenant: Option<TenantName>,
    /// The id of the client's key; `None` where none was asked for.
    pub key: Option<Arc<str>>,
    /// The replica of the last attempt; `None` if no attempt was made.
    pub replica: Option<ReplicaName>,
    /// Why the policy chose that one, one of a fixed list; `None` if no attempt was made.
    pub reason: Option<&'static str>,
    /// The other region that served it; `None` if this one did, or none.
    pub region: Option<RegionName>,
    /// Another node forwarded it.
    pub is_guest: bool,
    /// Status code the client was sent; 499 if it left before one was sent. A call over gRPC that
    /// the gateway itself refused has the code that the same error has over HTTP.
    pub status: u16,
    /// How a call over gRPC ended in its own words; `None` for others, and where it ended without.
    pub grpc_status: Option<u8>,
    /// How it ended.
    pub end: End,
    /// From the request's head to its end.
    pub duration: Duration,
    /// From the request's head to the first byte of the reply's body.
    pub first_byte: Option<Duration>,
    /// Time the gateway itself spent before the replica was asked, body transfer excluded.
    pub overhead: Duration,
    /// Retries after an attempt that provably never reached the replica.
    pub retries_unsent: u8,
    /// Retries after a reset: the replica may have seen the request.
    pub retries_reset: u8,
    /// Tokens, where the reply told them or its events could be counted.
    pub tokens: TokenCounts,
    /// Time between the events of a stream; `None` for unary replies.
    pub gaps: Option<Box<GapHistogram>>,
    /// The prompt's blocks; empty where it has none.
    pub prefix: BlockHashes,
    /// From sending the last attempt to the first byte of its reply; `None` without a reply.
    pub reply_time: Option<Duration>,
    /// What the last attempt was predicted to take; `None` where its policy predicts nothing.
    pub predicted: Option<Prediction>,
    /// Why the gateway turned it away for load or for a limit; `None` if it did not.
    pub shed: Option<Shed>,
    /// What came of the second attempt that was made beside the first; `None` if none was.
    pub hedge: Option<Hedge>,
}

impl Outcome {
    /// The outcome of a request of which nothing is known yet: its client left before a reply.
    #[must_use]
    pub fn begun() -> Self {
        Self {
            route: None,
            model: None,
            arm: None,
            fallback_for: None,
            tenant: None,
            key: None,
            replica: None,
            reason: None,
            region: None,
            is_guest: false,
            status: CLIENT_CLOSED_REQUEST,
            grpc_status: None,
            end: End::CancelledBeforeReply,
            duration: Duration::ZERO,
            first_byte: None,
            overhead: Duration::ZERO,
            retries_unsent: 0,
            retries_reset: 0,
            tokens: TokenCounts::default(),
            gaps: None,
            prefix: BlockHashes::default(),
            reply_time: None,
            predicted: None,
            shed: None,
            hedge: None,
        }
    }
}

/// Status for a client that left before it was sent one, as nginx made it known.
const CLIENT_CLOSED_REQUEST: u16 = 499;

/// A request that was turned away for load or for a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shed {
    /// Why; one of a fixed list.
    pub reason: &'static str,
    /// Its class, 0 to 3.
    pub priority: u8,
}

/// What came of a second attempt that was made beside the first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Hedge {
    /// It began to reply first.
    Won,
    /// The first attempt began to reply before it.
    Lost,
    /// It failed, or found no replica that would take it at once.
    Failed,
}

/// An arm of a traffic split, by name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct SplitArm {
    /// The split: the name that clients ask for.
    pub split: ModelName,
    /// The arm.
    pub arm: ArmName,
}

/// Tokens of one request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TokenCounts {
    /// Prompt tokens as the replica reported them.
    pub prompt: u64,
    /// Generated tokens as reported, else counted events of the stream.
    pub completion: u64,
    /// Prompt tokens that were served from the replica's cache, as reported.
    pub cached: u64,
}

/// How a request ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum End {
    /// The reply was passed on to its last byte, whatever its status.
    Complete,
    /// The gateway answered it itself: an error of its own or a local endpoint.
    Answered,
    /// The client left before the reply's head was sent.
    CancelledBeforeReply,
    /// The client left while the reply was streaming.
    CancelledInReply,
    /// The replica broke off in the middle of the reply.
    Cut,
    /// The replica sent nothing for longer than the route allows.
    Stalled,
    /// The deadline or total time-out passed in the middle of the reply.
    DeadlinePassed,
}

impl End {
    /// Name as it stands in metrics.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Complete => "complete",
            Self::Answered => "answered",
            Self::CancelledBeforeReply => "cancelled_before_reply",
            Self::CancelledInReply => "cancelled_in_reply",
            Self::Cut => "cut",
            Self::Stalled => "stalled",
            Self::DeadlinePassed => "deadline_passed",
        }
    }
}

impl Hedge {
    /// Name as it stands in metrics.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Won => "won",
            Self::Lost => "lost",
            Self::Failed => "failed",
        }
    }
}
