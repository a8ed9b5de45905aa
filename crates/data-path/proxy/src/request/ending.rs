//! The end of a journey, as the client sees it.

use std::sync::atomic::Ordering;
use std::time::Duration;

use spillway_journey::{Ending, Journey, RefusedRequest, ResidencyDenial, RetryTime};
use spillway_protocol::{ErrorKind, GatewayError};
use spillway_route::{PlanError, ShedReason};
use spillway_transport::coarse_clock;
use spillway_view::{Foreseen, RemoteError};

use crate::request::dispatch::{Dispatch, Dispatched};
use crate::request::errors::{engines_died, internal, shed_error};

impl Dispatch<'_> {
    /// Answers as the journey ended.
    ///
    /// # Errors
    /// Returns the error for the client.
    pub(super) fn end(
        &mut self,
        ending: Ending,
        journey: &Journey,
    ) -> Result<Dispatched, GatewayError> {
        let error = match ending {
            // The reply was returned when it began.
            Ending::Reply => internal(),
            Ending::HeldReply => {
                return self.interim.held.take().map(|held| *held).ok_or_else(internal);
            }
            Ending::LastFailure | Ending::ClientFault => {
                self.interim.failure.take().unwrap_or_else(internal)
            }
            Ending::EnginesDied => engines_died(),
            Ending::OnlyRegionGone => self.only_region_gone(),
            Ending::OutsideResidency(denial) => self.outside_residency(denial),
            Ending::Shed { reason, .. }
            | Ending::SentAway { reason, .. }
            | Ending::NoSlotInTime(reason) => shed_error(reason),
            Ending::TooLate { reason, late_ms } => {
                too_late(reason, late_ms, self.prepared.inquiry.whole_tokens.is_some())
            }
            Ending::Refused(refused) => refused_error(refused),
        };
        let retry_time = match ending {
            // Clients that retry at once would find the replica unchanged.
            Ending::LastFailure if error.kind.is_lost_replica() => {
                RetryTime::Spread { not_before: None }
            }
            ending => ending.retry_time(coarse_clock::now()),
        };
        Err(match self.retry_after(retry_time, journey) {
            Some(retry_after) => error.with_retry_after(retry_after),
            None => error,
        })
    }

    fn only_region_gone(&self) -> GatewayError {
        match &self.prepared.target.home {
            Some(home) => RemoteError::NotConnected.to_gateway_error(&home.region),
            None => internal(),
        }
    }

    /// Counts a request that was about to be served here without permission, and returns its error.
    fn outside_residency(&self, denial: ResidencyDenial) -> GatewayError {
        let gateway = &self.worker.gateway;
        gateway.counters.residency_sent.fetch_add(1, Ordering::Relaxed);
        let (own, asked) = (&gateway.routing.own_region, &self.prepared.inquiry.residency);
        tracing::debug!(own, %asked, ?denial, "region not allowed");
        // The client may know its own rules, and not which region its request came to.
        let message = match denial {
            ResidencyDenial::NeverGiven => {
                format!("the request may be served {asked}: the region that could serve it is not")
            }
            ResidencyDenial::Withdrawn => {
                "its tenant or its client's country does not allow the region that could serve it any \
                 more"
                .to_owned()
            }
        };
        GatewayError::new(ErrorKind::RegionNotAllowed, message)
    }

    /// Returns the time after which the client is asked to retry; `None` if its answer has no such
    /// time.
    fn retry_after(&mut self, retry_time: RetryTime, journey: &Journey) -> Option<Duration> {
        let now = coarse_clock::now();
        let (refusal, not_before) = match retry_time {
            RetryTime::Untold => return None,
            RetryTime::After(after) => return Some(after),
            RetryTime::Promised { refusal, not_before } => (Some(refusal), not_before),
            RetryTime::Spread { not_before } => (None, not_before),
        };
        // Queues are kept by model: without one there is no rate to foretell a slot from.
        let model = self.prepared.inquiry.model.clone()?;
        self.recognize();
        let asking = self.asking(&model, journey.claim());
        let queues = &self.worker.gateway.routing.waiting;
        let mut dice = self.dice.clone();
        let seconds = match refusal {
            None => queues.turn_away(&asking, &mut dice),
            Some(refusal) => {
                // Where an objective refuses, few slots are promised, and none on a guess.
                let reply_tokens = self.expected_reply_tokens();
                let rate_per_s = |tokens| match refusal.is_by_objective() {
                    true => journey.expected_rate(self, tokens),
                    false => journey.foreseen_rate(self, tokens, reply_tokens),
                };
                queues.shed(&asking, Foreseen { refusal, rate_per_s }, &mut dice)
            }
        };
        Some(RetryTime::at_least(Duration::from_secs(seconds.into()), not_before, now))
    }
}

/// Returns the error for a request for which no replica could be asked.
fn refused_error(refused: RefusedRequest) -> GatewayError {
    let RefusedRequest { refusal, was_tried, .. } = refused;
    let reason = match refusal {
        // All were chosen, and all had their last slot taken by another request just then.
        PlanError::AllTried if !was_tried => ShedReason::ReplicaBusy,
        PlanError::NoReplica | PlanError::AllTried => ShedReason::NobodyInReach,
        PlanError::AllBusy | PlanError::AllResting => ShedReason::ReplicaBusy,
        PlanError::DeadlinePassed => ShedReason::Late,
    };
    GatewayError { message: refusal.to_string(), ..shed_error(reason) }
}

/// Returns the error for a request whose first token is predicted to come too late from a replica
/// that is free, or the end of its reply if that comes in one piece.
fn too_late(reason: ShedReason, late_ms: f32, is_whole: bool) -> GatewayError {
    let error = shed_error(reason);
    let message = format!(
        "{}: it is predicted after {late_ms:.0} ms, although a replica is free",
        match reason {
            ShedReason::Slo => error.message.as_str(),
            _ if is_whole => "the reply would end after the request's deadline",
            _ => "the first token would come after the request's deadline",
        }
    );
    GatewayError { message, ..error }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_reason_has_its_status() {
        for reason in ShedReason::ALL {
            assert!(ErrorKind::of_code(reason.code()).is_some(), "{reason:?}");
            let error = shed_error(reason);
            let status = match reason {
                ShedReason::Late => 504,
                reason if reason.is_limit() => 429,
                _ => 503,
            };
            assert_eq!(error.kind.status().as_u16(), status, "{reason:?}");
            assert_eq!(error.shed, Some(reason.name()));
        }
    }
}
