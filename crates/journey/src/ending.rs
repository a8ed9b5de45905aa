//! Endings of a journey.

use std::time::{Duration, Instant};

use spillway_route::{PlanError, ShedReason};

use crate::residency::ResidencyPermission;

/// End of a journey: the answer to the client.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Ending {
    /// The reply that began last.
    Reply,
    /// An error reply that was held back while a better one was sought.
    HeldReply,
    /// Failure of the last attempt.
    LastFailure,
    /// The client's own fault, e.g. an upload that broke off.
    ClientFault,
    /// The only region that could serve the request cannot be reached.
    OnlyRegionGone,
    /// This region may not serve the request; [`ResidencyPermission::Given`] never stands here.
    OutsideResidency(ResidencyPermission),
    /// The request is shed. The queue says when to come again.
    Shed {
        /// Reason for shedding.
        reason: ShedReason,
        /// Milliseconds until its turn would have come; 0 if unknown.
        predicted_ms: f32,
    },
    /// The queue has shed the request, and has said when to come again.
    SentAway {
        /// Reason for shedding.
        reason: ShedReason,
        /// Time after which to come again.
        retry_after: Duration,
    },
    /// The one replica that can answer had no place for too long.
    NoPlaceInTime(ShedReason),
    /// The first token is predicted to come too late from a replica that is free.
    TooLate {
        /// Limit that would be missed: [`ShedReason::Slo`] or [`ShedReason::Late`].
        reason: ShedReason,
        /// Predicted milliseconds until the first token.
        first_token_ms: f32,
    },
    /// No replica could be asked.
    Refused(RefusedRequest),
}

/// Refusal of a request for which no replica could be asked.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RefusedRequest {
    /// Reason for which no replica was chosen.
    pub refusal: PlanError,
    /// True if an attempt was made before.
    pub was_tried: bool,
    /// Moment at which the first replica takes requests again, if the request was refused because
    /// all have asked for a pause.
    pub retry_at: Option<Instant>,
}

impl Ending {
    /// Returns true if the client gets an error of the gateway's own.
    #[must_use]
    pub fn is_error(&self) -> bool {
        !matches!(self, Self::Reply | Self::HeldReply)
    }
}
