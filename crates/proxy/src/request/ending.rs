//! The end of a journey, as the client is told it.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use spillway_journey::{Ending, Journey, RefusedRequest, ResidencyPermission};
use spillway_protocol::{ErrorKind, GatewayError};
use spillway_route::{PlanError, ShedReason, SloProbes};

use crate::request::dispatch::{Dispatch, Dispatched};
use crate::request::errors::{internal, shed_error};
use spillway_upstream::remote::RemoteError;
use spillway_upstream::wait_queues::Foreseen;

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
        match ending {
            // The reply was returned when it began.
            Ending::Reply => Err(internal()),
            Ending::HeldReply => self.interim.held.take().map(|held| *held).ok_or_else(internal),
            Ending::LastFailure | Ending::ClientFault => {
                Err(self.interim.failure.take().unwrap_or_else(internal))
            }
            Ending::OnlyRegionGone => Err(self.only_region_gone()),
            Ending::OutsideResidency(permission) => Err(self.outside_residency(permission)),
            Ending::Shed { reason, predicted_ms } => Err(self.shed(reason, predicted_ms, journey)),
            Ending::SentAway { reason, retry_after } => {
                Err(shed_error(reason).with_retry_after(retry_after))
            }
            Ending::NoPlaceInTime(reason) => Err(shed_error(reason)),
            Ending::TooLate { reason, first_token_ms } => Err(too_late(reason, first_token_ms)),
            Ending::Refused(refused) => Err(refused_error(refused)),
        }
    }

    fn only_region_gone(&self) -> GatewayError {
        match &self.prepared.target.home {
            Some(home) => RemoteError::NotConnected.to_gateway_error(&home.region),
            None => internal(),
        }
    }

    /// Returns the error for a request that was about to be served here without permission, and
    /// counts it.
    fn outside_residency(&self, permission: ResidencyPermission) -> GatewayError {
        let gateway = &self.worker.gateway;
        gateway.counters.residency_sent.fetch_add(1, Ordering::Relaxed);
        let (own, asked) = (&gateway.config.region, &self.prepared.inquiry.residency);
        let message = match permission {
            ResidencyPermission::NeverGiven => {
                format!("the request may be served {asked}, which {own} is not")
            }
            ResidencyPermission::Withdrawn | ResidencyPermission::Given => {
                format!("its tenant or its client's country does not allow {own} any more")
            }
        };
        GatewayError::new(ErrorKind::RegionNotAllowed, message)
    }

    /// Turns the request away: says why and when to come again.
    fn shed(&mut self, reason: ShedReason, predicted_ms: f32, journey: &Journey) -> GatewayError {
        // Queues are kept by model: without one there is no rate to foretell a place from.
        let Some(model) = self.prepared.inquiry.model.clone() else { return shed_error(reason) };
        self.recognize();
        let asking = self.asking(&model, journey.claim());
        let queues = &self.worker.gateway.waiting;
        let mut dice = self.dice.clone();
        let seconds = match reason {
            ShedReason::NobodyInReach => queues.turn_away(&asking, &mut dice),
            _ => {
                let rate_per_s = |tokens| journey.expected_rate(self, tokens);
                let foreseen = Foreseen { wait_ms: predicted_ms, rate_per_s };
                queues.shed(&asking, foreseen, &mut dice)
            }
        };
        let promised = Duration::from_secs(seconds.into());
        // If all replicas asked for a pause, no place comes free before its end.
        let busy_until = journey.busy_until();
        let busy = busy_until.map(|until| until.saturating_duration_since(Instant::now()));
        shed_error(reason).with_retry_after(promised.max(busy.unwrap_or_default()))
    }
}

/// Returns the error for a request for which no replica could be asked.
fn refused_error(refused: RefusedRequest) -> GatewayError {
    let RefusedRequest { refusal, was_tried, retry_at } = refused;
    let (kind, reason) = match refusal {
        // All were chosen, and all had their last place taken by another request just then.
        PlanError::AllTried if !was_tried => (ErrorKind::Overloaded, ShedReason::ReplicaBusy),
        PlanError::NoReplica | PlanError::AllTried => {
            (ErrorKind::NoReplica, ShedReason::NobodyInReach)
        }
        PlanError::AllBusy | PlanError::AllResting => {
            (ErrorKind::Overloaded, ShedReason::ReplicaBusy)
        }
        PlanError::DeadlinePassed => (ErrorKind::DeadlineExceeded, ShedReason::Late),
    };
    let error = GatewayError::new(kind, refusal.to_string()).with_shed(reason.name());
    match retry_at {
        Some(until) => error.with_retry_after(until.saturating_duration_since(Instant::now())),
        None => error,
    }
}

/// Returns the error for a request whose first token is predicted to come too late from a replica
/// that is free.
pub(super) fn too_late(reason: ShedReason, late_ms: f32) -> GatewayError {
    let error = shed_error(reason);
    let message = format!(
        "{}: it is predicted after {late_ms:.0} ms, although a replica is free",
        match reason {
            ShedReason::Slo => error.message.as_str(),
            _ => "the first token would come after the request's deadline",
        }
    );
    let error = GatewayError { message, ..error };
    match reason {
        // By then the prediction is tried again. The same request with the same deadline is no better
        // off for coming again.
        ShedReason::Slo => error.with_retry_after(SloProbes::PERIOD),
        _ => error,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_reason_has_its_status() {
        for reason in ShedReason::ALL {
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
