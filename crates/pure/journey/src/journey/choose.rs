//! Choice of the next step, when nothing is under way.

use std::time::Instant;

use spillway_route::{Attempt, PlanError, ShedReason, SpillReason};
use spillway_types::RegionName;

use super::{Journey, JourneyState};
use crate::decision::{Decision, RequestWay};
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
            } else if self.needs_ticket(sight) {
                self.state = JourneyState::Numbering;
            } else {
                let decision = self.consider(sight, now, rng);
                self.notes.compared = decision.compared_costs().or(self.notes.compared);
                self.decide(&decision, sight, now, rng);
            }
        }
    }

    /// Asks a second replica beside a silent one, if there is one and no other request waits for
    /// its slot.
    pub(super) fn choose_second<S: Sight>(
        &mut self,
        first: Attempt,
        sight: &S,
        now: Instant,
        rng: &mut fastrand::Rng,
    ) {
        let second = if sight.is_quiet() { self.plan(sight, now, rng).ok() } else { None };
        self.state = match second {
            Some(second) => JourneyState::Hedging { first, second },
            None => JourneyState::Listening(first),
        };
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
            (RequestWay::Region { index, reason }, _) => {
                self.forward(sight.region(index).clone(), Some(reason), sight, now);
            }
            (RequestWay::Own, Ok(_)) if self.waits_for_start(sight, now) => {
                self.wait_for_start(sight, now);
            }
            (RequestWay::Shed { reason: ShedReason::NobodyInReach, .. }, Err(_))
                if self.may_wait_for_start(sight, now) =>
            {
                self.wait_for_start(sight, now);
            }
            (RequestWay::Own, Ok(attempt)) => self.ask(attempt, Connection::KeptOrNew, sight),
            (RequestWay::Own, Err(refusal)) => self.refuse(refusal, sight, now, rng),
            // A prediction that is never tried would stay wrong for ever.
            (RequestWay::TooLate { reason, late_ms }, Ok(attempt)) => {
                self.state = JourneyState::Probing { attempt, reason, late_ms };
            }
            (RequestWay::TooLate { reason, late_ms }, Err(_)) => {
                self.too_late(reason, late_ms, sight, now);
            }
            // Another model that can serve now beats a place in a queue.
            (RequestWay::Wait { .. } | RequestWay::Shed { .. }, _) if sight.has_stand_in() => {
                self.state = JourneyState::Renaming;
            }
            (RequestWay::Shed { reason: ShedReason::Slo, .. }, _) if self.awaits_moment(now) => {
                self.pause_for_moment(now);
            }
            (RequestWay::Wait { prefill_ms }, _) => self.wait(prefill_ms, sight, now),
            (RequestWay::Shed { reason, predicted_ms }, _) => {
                self.shed(reason, predicted_ms, sight);
            }
        }
    }

    /// Takes a slot at a replica, if this region may still serve the request.
    pub(super) fn ask<S: Sight>(&mut self, attempt: Attempt, connection: Connection, sight: &S) {
        // The rules may have changed while the request waited.
        if let Err(denial) = sight.permission() {
            return self.end(Ending::OutsideResidency(denial));
        }
        if connection == Connection::KeptOrNew {
            self.tried.push(attempt.slot);
        }
        self.state = JourneyState::Placing { attempt, connection };
    }

    /// Goes on without a replica that would begin its reply in time: with another model, at a later
    /// moment, or not at all.
    pub(super) fn too_late<S: Sight>(
        &mut self,
        reason: ShedReason,
        late_ms: f32,
        sight: &S,
        now: Instant,
    ) {
        if sight.has_stand_in() {
            self.state = JourneyState::Renaming;
        } else if reason == ShedReason::Slo && self.awaits_moment(now) {
            self.pause_for_moment(now);
        } else {
            self.end(Ending::TooLate { reason, late_ms });
        }
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
            self.notes.regions_forbidden += 1;
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
        // The reason for refusing the first model says more than the fate of its stand-ins.
        let first = *self.refusal.get_or_insert(refusal);
        // After the deadline a stand-in is no use either.
        if !is_late && sight.has_stand_in() {
            self.state = JourneyState::Renaming;
            return;
        }
        if let Some(attempt) = self.plan_among_next(refusal, sight, now, rng) {
            return self.ask(attempt, Connection::KeptOrNew, sight);
        }
        let is_none_left = matches!(refusal, PlanError::NoReplica | PlanError::AllTried);
        if is_none_left && self.may_wait_for_start(sight, now) {
            return self.wait_for_start(sight, now);
        }
        // A failure that was seen says more to the client than that no replica is left.
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
