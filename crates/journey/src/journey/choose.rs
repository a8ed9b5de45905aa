//! Choice of the next step, when nothing is under way.

use std::time::Instant;

use spillway_route::{Attempt, PlanError, ShedReason, SpillReason};
use spillway_types::RegionName;

use super::{Journey, JourneyState};
use crate::decision::{Decision, Way};
use crate::ending::{Ending, RefusedRequest};
use crate::sight::Sight;
use crate::standing::Position;
use crate::step::Connection;

impl Journey {
    /// Chooses the step that ends the planning.
    pub(super) fn choose<S: Sight>(&mut self, sight: &S, now: Instant, rng: &mut fastrand::Rng) {
        while self.state == JourneyState::Planning {
            if let Some(region) = sight.only_region() {
                match self.refusals.has(region) {
                    true => self.end(Ending::OnlyRegionGone),
                    false => self.forward(region.clone(), None, sight, now),
                }
            } else if self.leaves_model(sight) && sight.has_stand_in() {
                self.state = JourneyState::Renaming;
            } else {
                let decision = self.consider(sight, now, rng);
                self.compared = decision.compared_costs().or(self.compared);
                self.decide(&decision, sight, now, rng);
            }
        }
    }

    /// Asks a second replica beside a silent one, if no other request waits for that place and the
    /// budget allows it.
    pub(super) fn choose_second<S: Sight>(
        &mut self,
        first: Attempt,
        sight: &S,
        now: Instant,
        rng: &mut fastrand::Rng,
    ) {
        self.state = JourneyState::Listening(first);
        if !sight.is_quiet() {
            return;
        }
        // The budget is asked last, so that it is kept if there is no second replica.
        if let Ok(second) = self.plan(sight, now, rng)
            && sight.take_hedge(now)
        {
            self.state = JourneyState::Hedging { first, second };
        }
    }

    /// Returns true if another model is to be asked although this one may have replicas left: they
    /// are in a bad state, or two of them failed and only one more attempt is allowed.
    fn leaves_model<S: Sight>(&self, sight: &S) -> bool {
        let is_last = self.attempts >= 2 && self.attempts + 1 == self.attempts_max;
        (is_last && self.attempts_of_model > 0) || sight.starts_with_stand_in()
    }

    fn decide<S: Sight>(
        &mut self,
        decision: &Decision,
        sight: &S,
        now: Instant,
        rng: &mut fastrand::Rng,
    ) {
        match (decision.way, decision.planned) {
            (Way::Region { index, reason }, _) => {
                self.forward(sight.region(index).clone(), Some(reason), sight, now);
            }
            (Way::Own, Ok(attempt)) => self.ask(attempt, Connection::KeptOrNew, sight),
            (Way::Own, Err(refusal)) => self.refuse(refusal, sight, now, rng),
            // A prediction that is never tried would stay wrong for ever.
            (Way::TooLate { .. }, Ok(attempt)) if sight.take_late_probe(now) => {
                self.ask(attempt, Connection::KeptOrNew, sight);
            }
            // Another model that can serve now beats a place in a queue.
            (Way::Wait { .. } | Way::Shed { .. } | Way::TooLate { .. }, _)
                if sight.has_stand_in() =>
            {
                self.state = JourneyState::Renaming;
            }
            (
                Way::TooLate { reason: ShedReason::Slo, .. }
                | Way::Shed { reason: ShedReason::Slo, .. },
                _,
            ) if self.awaits_moment(now) => self.pause_for_moment(now),
            (Way::TooLate { reason, first_token_ms }, _) => {
                self.end(Ending::TooLate { reason, first_token_ms });
            }
            (Way::Wait { prefill_ms }, _) => self.wait(prefill_ms, sight, now),
            (Way::Shed { reason, predicted_ms }, _) => self.shed(reason, predicted_ms, sight),
        }
    }

    fn ask<S: Sight>(&mut self, attempt: Attempt, connection: Connection, sight: &S) {
        // The rules may have changed while the request waited.
        if let Err(denial) = sight.permission() {
            return self.end(Ending::OutsideResidency(denial));
        }
        if connection == Connection::KeptOrNew {
            self.tried.push(attempt.slot);
        }
        self.state = JourneyState::Placing { attempt, connection };
    }

    fn forward<S: Sight>(
        &mut self,
        region: RegionName,
        reason: Option<SpillReason>,
        sight: &S,
        now: Instant,
    ) {
        // The rules may have changed since the regions were compared: another way is sought.
        if !sight.may_serve(&region) {
            self.note_outside_residency(region, now);
            return;
        }
        // Otherwise the queue would call the request while it is served elsewhere.
        self.standing.position = Position::Outside;
        self.state = JourneyState::Forwarding { region, reason };
    }

    /// Goes on without a replica of the group: with another connection, model, standing or ending.
    fn refuse<S: Sight>(
        &mut self,
        refusal: PlanError,
        sight: &S,
        now: Instant,
        rng: &mut fastrand::Rng,
    ) {
        if let Some(attempt) = self.retry_on_new_connection.take() {
            return self.ask(attempt, Connection::New, sight);
        }
        let is_late = refusal == PlanError::DeadlinePassed;
        // The reason for refusing the first model says more than what became of its stand-ins.
        let first = *self.refusal.get_or_insert(refusal);
        // After the deadline a stand-in is no use either.
        if !is_late && sight.has_stand_in() {
            self.state = JourneyState::Renaming;
            return;
        }
        if let Some(attempt) = self.plan_among_next(refusal, sight, now, rng) {
            return self.ask(attempt, Connection::KeptOrNew, sight);
        }
        // A failure that was seen tells the client more than that no replica is left.
        if self.has_failed {
            return self.end(Ending::LastFailure);
        }
        let refusal = if is_late { refusal } else { first };
        let waits = matches!(refusal, PlanError::AllBusy | PlanError::AllResting);
        let retry_at = self.busy_until.filter(|_| waits);
        let was_tried = self.attempts > 0;
        self.end(Ending::Refused(RefusedRequest { refusal, was_tried, retry_at }));
    }
}
