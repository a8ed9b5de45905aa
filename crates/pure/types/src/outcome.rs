//! Outcome of a request: the one record that the data path leaves behind.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::{
    ArmName, BlockHashes, Compared, FailedTry, GapHistogram, LeftOutRegion, ModelName, Prediction,
    RegionName, ReplicaName, Residency, RouteName, TenantName, reasons,
};

/// A finished request, successful or not. Metrics and latency models read it.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    /// Id of the request, the client's own if it sent one; `None` before it was read.
    pub id: Option<Arc<str>>,
    /// Place of the request in a distributed trace; `None` before it was read.
    pub trace: Option<TraceIds>,
    /// Moment at which the request's head arrived; `None` before it was read.
    pub started: Option<Instant>,
    /// The route that matched; `None` if no route did.
    pub route: Option<RouteName>,
    /// The model that served, aliases resolved; `None` where unknown or not asked for.
    pub model: Option<ModelName>,
    /// Operation that the client asked for, as OpenTelemetry names it, e.g. `chat`; `None` for those
    /// that it has no name for.
    pub operation: Option<&'static str>,
    /// The arm of the split that the client asked for; `None` if the client asked for no split.
    pub arm: Option<Arc<SplitArm>>,
    /// Reason for the choice of the arm, one of a fixed list.
    pub arm_reason: Option<&'static str>,
    /// The model that could not serve, if [`Outcome::model`] served in its place.
    pub fallback_for: Option<ModelName>,
    /// The client's tenant; `None` if it has none.
    pub tenant: Option<TenantName>,
    /// Id of the client's key; `None` where no key was asked for.
    pub key: Option<Arc<str>>,
    /// The replica of the last attempt; `None` if no attempt was made.
    pub replica: Option<ReplicaName>,
    /// The policy's reason to choose that replica, from a fixed list; `None` if no attempt was
    /// made.
    pub reason: Option<&'static str>,
    /// Reason for which no replica of one's own could serve the request, if an overflow replica was
    /// asked, from a fixed list.
    pub overflow: Option<&'static str>,
    /// The other region that served the request, or was asked last and failed; `None` if this region
    /// did, or none was asked.
    pub region: Option<RegionName>,
    /// Places that were asked without success, in this order.
    pub tries: Vec<FailedTry>,
    /// Other regions that were not considered, of a request that failed or for which regions were
    /// compared.
    pub left_out: Vec<LeftOutRegion>,
    /// Places where the request may be served.
    pub residency: Residency,
    /// Last comparison of regions; `None` if none was needed.
    pub compared: Option<Box<Compared>>,
    /// True if another node forwarded the request.
    pub is_guest: bool,
    /// Status code sent to the client; 499 if the client left before one was sent. A gRPC call that
    /// the gateway itself refused has the code that the same error has over HTTP.
    pub status: u16,
    /// Status of a gRPC call; `None` for other requests, and for calls that ended without a status.
    pub grpc_status: Option<u8>,
    /// Code of the failure, from a fixed list; `None` for a success.
    pub code: Option<&'static str>,
    /// Message of the gateway's own error, or the code or type that the replica gave its error.
    pub detail: Option<String>,
    /// Manner in which the request ended.
    pub end: End,
    /// Time from the request's head to the end of the request.
    pub duration: Duration,
    /// True if the reply was a stream of events.
    pub is_stream: bool,
    /// Time from the request's head to the first byte of the reply's body.
    pub first_byte: Option<Duration>,
    /// Time the gateway itself spent before the replica was asked, body transfer excluded.
    pub overhead: Duration,
    /// Retries after an attempt that provably never reached the replica.
    pub retries_unsent: u8,
    /// Retries after a reset: the replica may have seen the request.
    pub retries_reset: u8,
    /// Tokens that the request used: as its replica reported them, or estimated.
    pub tokens: TokenCounts,
    /// Estimated part of [`Outcome::tokens`]; `None` if a replica reported all of them.
    pub estimate: Option<TokenEstimate>,
    /// Gaps between the events of a stream; `None` for replies in one piece.
    pub gaps: Option<Box<GapHistogram>>,
    /// Hashes of the prompt's blocks; empty where the request has no prompt.
    pub prefix: BlockHashes,
    /// Time from sending the last attempt to the first byte of its reply; `None` without a reply.
    pub reply_time: Option<Duration>,
    /// Prediction for the last attempt; `None` where the policy predicts nothing.
    pub predicted: Option<Prediction>,
    /// Refusal by the gateway for load or for a limit; `None` if it did not refuse.
    pub shed: Option<Shed>,
    /// Result of a hedge, the second attempt beside the first; `None` if no hedge was made.
    pub hedge: Option<Hedge>,
}

impl Outcome {
    /// Returns the outcome of a request of which nothing is known yet: as if the client left before
    /// a reply.
    #[must_use]
    pub fn begun() -> Self {
        Self { status: CLIENT_CLOSED_REQUEST, ..Self::default() }
    }

    /// Returns the time from the request's head to the first token of a stream that went well.
    /// `None` for an error, and for a reply in one piece, whose first byte comes after its last
    /// token.
    #[must_use]
    pub fn first_token(&self) -> Option<Duration> {
        self.first_byte.filter(|_| self.is_stream && self.is_success())
    }

    /// Returns the time from the request's head to the end of a complete reply in one piece that went
    /// well; `None` for an error, and for a stream.
    #[must_use]
    pub fn whole_reply(&self) -> Option<Duration> {
        let is_whole = !self.is_stream && self.end == End::Complete && self.is_success();
        is_whole.then_some(self.duration)
    }

    /// Returns the time from the request's head to the end of a complete reply that went well; `None`
    /// for an error.
    #[must_use]
    pub fn complete_reply(&self) -> Option<Duration> {
        (self.end == End::Complete && self.is_success()).then_some(self.duration)
    }

    /// Returns the reason for which the arm of the request's split failed, one of [`ARM_ERRORS`];
    /// `None` if it did not. An error or a cancellation by the client is no failure of an arm.
    #[must_use]
    pub fn arm_error(&self) -> Option<&'static str> {
        match self.shed {
            _ if self.fallback_for.is_some() => Some("fallback"),
            Some(_) => self.is_of_server().then_some("refused"),
            None => self.failure(),
        }
    }

    /// Returns the manner in which the request failed after it was admitted, one of `status`, `cut`,
    /// `stalled` and `deadline_passed`. `None` if it did not fail, if the gateway refused it, and for
    /// what clients do wrong or undo.
    #[must_use]
    pub fn failure(&self) -> Option<&'static str> {
        match self.end {
            _ if self.shed.is_some() => None,
            End::Cut | End::Stalled | End::DeadlinePassed => Some(self.end.name()),
            _ => self.is_of_server().then_some("status"),
        }
    }

    /// Returns true if the request failed, by whomever: its status is an error, or its reply broke off.
    #[must_use]
    pub fn has_failed(&self) -> bool {
        self.code.is_some()
            || self.status >= 400
            || self.grpc_status.is_some_and(|code| code != 0)
            || !matches!(self.end, End::Complete | End::Answered)
    }

    /// Returns true if the status is the fault of the gateway or of a replica.
    fn is_of_server(&self) -> bool {
        self.status >= 500 || self.grpc_status.is_some_and(is_server_fault)
    }

    fn is_success(&self) -> bool {
        (200..300).contains(&self.status) && self.grpc_status.unwrap_or(0) == 0
    }
}

/// Reasons for which the arm of a split fails, as in metrics.
pub const ARM_ERRORS: [&str; 6] =
    ["fallback", "refused", "status", "cut", "stalled", "deadline_passed"];

/// Returns true for the status of a gRPC call that is the server's fault: the others are about the
/// request, or the client's.
fn is_server_fault(grpc_status: u8) -> bool {
    // UNKNOWN, DEADLINE_EXCEEDED, RESOURCE_EXHAUSTED, UNIMPLEMENTED, INTERNAL, UNAVAILABLE and
    // DATA_LOSS.
    matches!(grpc_status, 2 | 4 | 8 | 12..=15)
}

/// Status recorded for a client that left before it was sent one, as nginx made it known.
const CLIENT_CLOSED_REQUEST: u16 = 499;

/// Place of a request in a distributed trace, as the W3C trace context has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TraceIds {
    /// Id of the whole trace; never 0.
    pub trace: u128,
    /// Id of the caller's span; `None` if the trace begins here.
    pub parent: Option<u64>,
    /// Id of this node's span; never 0.
    pub span: u64,
    /// True if the trace is recorded: its first caller says so, or it was drawn here.
    pub is_sampled: bool,
}

/// A request that was rejected for load or for a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shed {
    /// Reason of the refusal, from a fixed list.
    pub reason: &'static str,
    /// Priority class of the request, 0 to 3.
    pub priority: u8,
}

reasons! {
    /// Result of a hedge, the second attempt that was made beside the first.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
    pub enum Hedge {
        /// The second attempt began to reply first.
        Won = "won";
        /// The first attempt began to reply first.
        Lost = "lost";
        /// The second attempt failed, or no replica had room for it at once.
        Failed = "failed";
    }
}

/// An arm of a traffic split, by name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct SplitArm {
    /// Name of the split, which clients ask for like a model.
    pub split: ModelName,
    /// Name of the arm.
    pub arm: ArmName,
}

/// Tokens of one request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TokenCounts {
    /// Tokens of the prompt.
    pub prompt: u64,
    /// Generated tokens.
    pub completion: u64,
    /// Prompt tokens that were served from the replica's cache, as reported.
    pub cached: u64,
}

/// Tokens of a request that no replica reported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TokenEstimate {
    /// Prompt tokens and generated tokens that are estimated.
    pub tokens: u64,
    /// Reason for the estimate.
    pub reason: EstimateReason,
}

reasons! {
    /// Reason for an estimate of tokens.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
    pub enum EstimateReason {
        /// The reply is complete, but reports no usage.
        Unreported = "unreported";
        /// The request ended before its reply could report its usage.
        EarlyEnd = "early_end";
        /// The replica reported an impossible usage.
        Implausible = "implausible";
    }
}

reasons! {
    /// Manner in which a request ended.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
    pub enum End {
        /// The whole reply was forwarded.
        Complete = "complete";
        /// The gateway itself answered.
        Answered = "answered";
        /// The client disconnected before the reply began.
        CancelledBeforeReply = "cancelled_before_reply";
        /// The client disconnected during the reply.
        CancelledInReply = "cancelled_in_reply";
        /// The reply broke off before its end.
        Cut = "cut";
        /// The reply stopped for longer than the route allows.
        Stalled = "stalled";
        /// The deadline or the total time-out passed during the reply.
        DeadlinePassed = "deadline_passed";
    }
}

#[expect(
    clippy::derivable_impls,
    reason = "a variant of `reasons!` has its meaning as only attribute"
)]
impl Default for End {
    fn default() -> Self {
        Self::CancelledBeforeReply
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reply_has_a_first_token_or_a_whole_or_neither() {
        let (first, whole) = (Some(Duration::from_millis(40)), Duration::from_secs(2));
        let of = |status, is_stream, end, grpc_status| {
            let times = Outcome { first_byte: first, duration: whole, ..Outcome::begun() };
            let outcome = Outcome { status, is_stream, end, grpc_status, ..times };
            (outcome.first_token(), outcome.whole_reply())
        };
        assert_eq!(of(200, true, End::Complete, None), (first, None));
        assert_eq!(of(200, true, End::CancelledInReply, None), (first, None), "it came");
        assert_eq!(of(200, false, End::Complete, None), (None, Some(whole)));
        assert_eq!(of(200, false, End::Complete, Some(0)), (None, Some(whole)));
        for (status, is_stream, end, grpc_status) in [
            (500, false, End::Complete, None),
            (429, true, End::Complete, None),
            (200, false, End::Cut, None),
            (200, false, End::Answered, None),
            (200, false, End::Complete, Some(14)),
        ] {
            assert_eq!(of(status, is_stream, end, grpc_status), (None, None), "{status} {end:?}");
        }
    }
}
