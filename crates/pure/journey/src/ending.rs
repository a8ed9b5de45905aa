//! Endings of a journey.

use std::time::{Duration, Instant};

use spillway_route::{PlanError, Refusal, ShedReason, SloProbes};

use crate::residency::ResidencyDenial;

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
    /// Two engines died while they worked on the request, which may be the cause.
    EnginesDied,
    /// The only region that could serve the request cannot be reached.
    OnlyRegionGone,
    /// This region may not serve the request.
    OutsideResidency(ResidencyDenial),
    /// The request is shed. The queue knows when the client should retry.
    Shed {
        /// Reason for shedding.
        reason: ShedReason,
        /// Milliseconds until its turn would have come; 0 if unknown.
        predicted_ms: f32,
        /// Moment before which no slot comes free, if one is known.
        not_before: Option<Instant>,
    },
    /// The queue has shed the request, and has returned when the client should retry.
    SentAway {
        /// Reason for shedding.
        reason: ShedReason,
        /// Time after which the client should retry.
        retry_after: Duration,
    },
    /// The one replica that can answer had no slot for too long.
    NoSlotInTime(ShedReason),
    /// The first token is predicted to come too late from a replica that is free, or the end of a
    /// reply in one piece.
    TooLate {
        /// Limit that would be missed: [`ShedReason::Slo`] or [`ShedReason::Late`].
        reason: ShedReason,
        /// Predicted milliseconds until then.
        late_ms: f32,
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

/// Source of the time after which a client is asked to retry.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum RetryTime {
    /// The client gets no time, or that of a replica's reply.
    Untold,
    /// The journey knows the time.
    After(Duration),
    /// The queue promises a slot.
    Promised {
        /// Reason and predicted wait.
        refusal: Refusal,
        /// Moment before which no slot comes free, if one is known.
        not_before: Option<Instant>,
    },
    /// No slot can be foreseen: clients are spread over some time.
    Spread {
        /// Moment before which no slot comes free, if one is known.
        not_before: Option<Instant>,
    },
}

impl Ending {
    /// Returns the source of the `Retry-After` of the answer to the client.
    #[must_use]
    pub fn retry_time(&self, now: Instant) -> RetryTime {
        match *self {
            Self::Shed { reason: ShedReason::NobodyInReach, not_before, .. } => {
                RetryTime::Spread { not_before }
            }
            Self::Shed { reason, predicted_ms, not_before } => {
                RetryTime::Promised { refusal: Refusal::new(reason, predicted_ms), not_before }
            }
            Self::SentAway { retry_after, .. } => RetryTime::After(retry_after),
            // While no rate is known, the client comes when the prediction is tried again. The same
            // request with the same deadline is no better off for coming again.
            Self::TooLate { reason: ShedReason::Slo, .. } => {
                let predicted_ms = SloProbes::PERIOD.as_secs_f32() * 1e3;
                let refusal = Refusal::new(ShedReason::Slo, predicted_ms);
                RetryTime::Promised { refusal, not_before: None }
            }
            Self::Refused(RefusedRequest { retry_at: Some(at), .. }) => {
                RetryTime::After(at.saturating_duration_since(now))
            }
            Self::Reply
            | Self::HeldReply
            | Self::LastFailure
            | Self::ClientFault
            | Self::EnginesDied
            | Self::OnlyRegionGone
            | Self::OutsideResidency(_)
            | Self::NoSlotInTime(_)
            | Self::TooLate { .. }
            | Self::Refused(_) => RetryTime::Untold,
        }
    }

    /// Returns true if a replica, a region or the client caused the answer, and not a lack of
    /// slots.
    #[must_use]
    pub fn is_of_replica(&self) -> bool {
        matches!(
            self,
            Self::Reply
                | Self::HeldReply
                | Self::LastFailure
                | Self::ClientFault
                | Self::EnginesDied
        )
    }

    /// Returns true if the client gets an error of the gateway's own.
    #[must_use]
    pub fn is_error(&self) -> bool {
        !matches!(self, Self::Reply | Self::HeldReply)
    }
}

impl RetryTime {
    /// Returns the time that the client gets: `promised` by the queue, but not before a slot comes
    /// free.
    #[must_use]
    pub fn at_least(promised: Duration, not_before: Option<Instant>, now: Instant) -> Duration {
        let busy = not_before.map(|at| at.saturating_duration_since(now));
        promised.max(busy.unwrap_or_default())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_ending_has_its_source_of_the_time_to_come_again() {
        #[expect(clippy::disallowed_methods, reason = "a test needs some moment")]
        let now = Instant::now();
        let soon = now + Duration::from_secs(3);
        let refused = |retry_at| {
            Ending::Refused(RefusedRequest {
                refusal: PlanError::AllResting,
                was_tried: false,
                retry_at,
            })
        };
        let shed = |reason| Ending::Shed { reason, predicted_ms: 7.0, not_before: Some(soon) };
        let late = |reason| Ending::TooLate { reason, late_ms: 9.0 };
        let not_before = Some(soon);
        let promised = |reason, predicted_ms, not_before| RetryTime::Promised {
            refusal: Refusal::new(reason, predicted_ms),
            not_before,
        };
        for (ending, expected) in [
            (shed(ShedReason::QueueFull), promised(ShedReason::QueueFull, 7.0, not_before)),
            (shed(ShedReason::NobodyInReach), RetryTime::Spread { not_before }),
            (late(ShedReason::Slo), promised(ShedReason::Slo, 10_000.0, None)),
            (late(ShedReason::Late), RetryTime::Untold),
            (refused(Some(soon)), RetryTime::After(Duration::from_secs(3))),
            (refused(None), RetryTime::Untold),
            (Ending::NoSlotInTime(ShedReason::Waited), RetryTime::Untold),
            (Ending::LastFailure, RetryTime::Untold),
        ] {
            assert_eq!(ending.retry_time(now), expected, "{ending:?}");
        }
    }
}
