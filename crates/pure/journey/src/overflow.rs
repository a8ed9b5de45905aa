//! Overflow: hosted APIs for requests that no replica of one's own can serve in time.
//!
//! An [`Overflow`] begins where a [`Journey`] has ended. The driver carries out each [`OverflowStep`]
//! and reports its result by [`Overflow::on`]. If no API replies with success, the request ends as its
//! journey did. A request that waits for a slot may go there, too, once it has waited for long.

use std::time::{Duration, Instant};

use spillway_route::{Attempt, Group, Moment, OverflowReason, Plan, PlanError, Reason, plan};
use spillway_types::ReplicaSlot;

use crate::ending::Ending;
use crate::journey::Journey;
use crate::retry::RetrySafety;
use crate::room::Room;
use crate::sight::{ReplicaSight, RequestSight};
use crate::step::Connection;

/// Facts about hosted APIs. No method has a side effect.
pub trait OverflowSight: RequestSight + ReplicaSight {
    /// Returns the overflow replicas of the model that the request names now; `None` if there are
    /// none, or if the request can't be sent to any.
    fn overflow(&self) -> Option<&Group>;

    /// Returns true if the residency rules of the request, as they are now, allow this replica.
    fn may_overflow_to(&self, slot: ReplicaSlot) -> bool;
}

/// Use of hosted APIs for one request.
#[derive(Clone, Debug)]
pub struct Overflow {
    /// Reason for which no replica of one's own serves the request.
    reason: &'static str,
    /// Overflow replicas that are not asked again.
    tried: Vec<ReplicaSlot>,
    state: OverflowState,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum OverflowState {
    /// Nothing is under way.
    // Planning => (Taking | Over)
    Planning,
    /// The caps are asked for one more request.
    // Taking => (Asking | Planning)
    Taking(Attempt),
    /// A replica is asked.
    // Asking => (Asking | Planning | Over)
    Asking(Attempt, Connection),
    /// A replica replied, or none is left.
    Over,
}

/// Act of the driver, which reports the result by [`Overflow::on`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum OverflowStep {
    /// Take one request from the caps of this replica. Report [`OverflowEvent::Allowance`].
    TakeAllowance(Attempt),
    /// Send the request to this replica. Report any other event.
    Ask {
        /// Replica to ask.
        attempt: Attempt,
        /// Kind of connection to use.
        connection: Connection,
    },
    /// Nothing more: the request ends as its journey did.
    GiveUp,
}

/// Result of a step.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum OverflowEvent {
    /// The caps were asked.
    Allowance {
        /// True if the request may be sent.
        is_allowed: bool,
    },
    /// The replica has no slot, or replied without success.
    Refused,
    /// The attempt failed.
    Failed {
        /// Safety of repeating the request.
        safety: RetrySafety,
        /// True if a kept connection broke.
        was_kept: bool,
    },
}

impl Overflow {
    /// Begins the use of hosted APIs after a journey; `None` if the journey ended for another reason
    /// than a lack of replicas, or the request can't be sent again.
    #[must_use]
    pub fn after(journey: &Journey) -> Option<Self> {
        let reason = journey.ending()?.lack().filter(|_| journey.can_go_elsewhere())?;
        Some(Self::because(reason))
    }

    /// Begins the use of hosted APIs for a request that a replica has refused for lack of room, and that
    /// no other is asked for, e.g. since the budget of retries is used up. `None` if the request can't
    /// be sent elsewhere.
    #[must_use]
    pub fn instead_of_refusal(journey: &Journey) -> Option<Self> {
        journey.can_go_elsewhere().then(|| Self::because(OverflowReason::Refused.name()))
    }

    /// Begins the use of hosted APIs for a request that has waited for a slot since so long; `None`
    /// before that, or if the request can't be sent elsewhere. It goes on waiting if no API serves it.
    #[must_use]
    pub fn instead_of_waiting(journey: &Journey, after: Duration, now: Instant) -> Option<Self> {
        let is_due = journey.waits_since().is_some_and(|since| now >= since + after);
        (is_due && journey.can_go_elsewhere())
            .then(|| Self::because(OverflowReason::Waiting.name()))
    }

    fn because(reason: &'static str) -> Self {
        Self { reason, tried: Vec::new(), state: OverflowState::Planning }
    }

    /// Returns the reason for which no replica of one's own serves the request.
    #[must_use]
    pub fn reason(&self) -> &'static str {
        self.reason
    }

    /// Returns the next step. Without an event in between it returns that step again.
    pub fn next<S: OverflowSight>(
        &mut self,
        sight: &S,
        now: Instant,
        rng: &mut fastrand::Rng,
    ) -> OverflowStep {
        if self.state == OverflowState::Planning {
            self.state = match self.plan(sight, now, rng) {
                Some(attempt) => OverflowState::Taking(attempt),
                None => OverflowState::Over,
            };
        }
        match self.state {
            OverflowState::Taking(attempt) => OverflowStep::TakeAllowance(attempt),
            OverflowState::Asking(attempt, connection) => OverflowStep::Ask { attempt, connection },
            OverflowState::Planning | OverflowState::Over => OverflowStep::GiveUp,
        }
    }

    /// Takes the result of a step. An event that does not fit the step changes nothing.
    pub fn on(&mut self, event: OverflowEvent) {
        self.state = match (self.state, event) {
            (OverflowState::Taking(attempt), OverflowEvent::Allowance { is_allowed: true }) => {
                OverflowState::Asking(attempt, Connection::KeptOrNew)
            }
            (OverflowState::Taking(_), OverflowEvent::Allowance { is_allowed: false })
            | (OverflowState::Asking(..), OverflowEvent::Refused) => OverflowState::Planning,
            (
                OverflowState::Asking(..),
                OverflowEvent::Failed { safety: RetrySafety::Never, .. },
            ) => OverflowState::Over,
            // Hosted APIs close idle connections when they like.
            (OverflowState::Asking(attempt, _), OverflowEvent::Failed { was_kept: true, .. }) => {
                OverflowState::Asking(attempt, Connection::New)
            }
            (OverflowState::Asking(..), OverflowEvent::Failed { .. }) => OverflowState::Planning,
            (state, event) => {
                debug_assert!(false, "{event:?} while {state:?}");
                state
            }
        };
    }

    fn plan<S: OverflowSight>(
        &mut self,
        sight: &S,
        now: Instant,
        rng: &mut fastrand::Rng,
    ) -> Option<Attempt> {
        let group = sight.overflow()?;
        loop {
            let loads = sight.loads(Room::UNBOUND, false);
            let moment = Moment { now, loads: &loads, ticket: 0, rng };
            let Plan::Attempt(attempt) = plan(sight.inquiry(), group, &self.tried, moment) else {
                return None;
            };
            self.tried.push(attempt.slot);
            if sight.may_overflow_to(attempt.slot) {
                return Some(Attempt { reason: Reason::Overflow, prediction: None, ..attempt });
            }
        }
    }
}

impl Ending {
    /// Returns the reason for which no replica of one's own serves the request, as metrics name it;
    /// `None` if it ended for another reason than a lack of replicas that can serve it in time.
    #[must_use]
    pub fn lack(&self) -> Option<&'static str> {
        match self {
            Self::Shed { reason, .. }
            | Self::SentAway { reason, .. }
            | Self::TooLate { reason, .. } => Some(reason.name()),
            Self::Refused(refused) if refused.refusal == PlanError::DeadlinePassed => None,
            Self::Refused(refused) => Some(refused.refusal.name()),
            Self::HeldReply => Some(OverflowReason::Refused.name()),
            Self::LastFailure => Some(OverflowReason::Failed.name()),
            Self::Reply
            | Self::ClientFault
            | Self::EnginesDied
            | Self::OnlyRegionGone
            | Self::OutsideResidency(_)
            | Self::NoSlotInTime(_) => None,
        }
    }
}

#[cfg(test)]
#[path = "overflow_test.rs"]
mod overflow_test;
