//! Decision about a request: the replica, and the way.

use std::time::Instant;

use spillway_route::{Attempt, Loads, Moment, Plan, PlanError, Reason, plan};

use super::Journey;
use crate::decision::Decision;
use crate::room::{AdapterRoom, Room};
use crate::sight::{ReplicaGroup, RoomLoads, Sight};
use crate::tenant_share;

impl Journey {
    /// Decides where the request would go now, without doing it: for [`Journey::next`], and for
    /// explanations. These call [`Journey::set_ticket`] before.
    pub fn consider<S: Sight>(
        &mut self,
        sight: &S,
        now: Instant,
        rng: &mut fastrand::Rng,
    ) -> Decision {
        loop {
            let planned = self.plan(sight, now, rng);
            let (way, spill) = self.weigh(planned, sight, now, rng);
            if !self.leaves_for_a_guess(way, planned, sight) {
                return Decision { planned, way, spill };
            }
            // Now no way is taken for a guess any more, so the loop ends with its second round.
            self.is_past_guesses = true;
        }
    }

    /// Sets the number of the request's decisions, e.g. to explain the next request without taking
    /// its number.
    pub fn set_ticket(&mut self, ticket: u64) {
        self.ticket = Some(ticket);
    }

    /// Returns true if a replica is to be chosen, and the request has no number yet. Others need
    /// none, and take no number away from those that do.
    pub(super) fn needs_ticket<S: Sight>(&self, sight: &S) -> bool {
        self.ticket.is_none()
            && sight.pinned().is_none()
            && sight.group().is_some_and(|group| rests_until(&group, sight).is_none())
    }

    /// Chooses a replica of this region.
    pub(super) fn plan<S: Sight>(
        &mut self,
        sight: &S,
        now: Instant,
        rng: &mut fastrand::Rng,
    ) -> Result<Attempt, PlanError> {
        if let Some(slot) = sight.pinned() {
            let attempt = Attempt { slot, reason: Reason::Session, prediction: None };
            let is_new = !self.tried.contains(&slot);
            return if is_new { Ok(attempt) } else { Err(PlanError::AllTried) };
        }
        let Some(group) = sight.group() else { return Err(PlanError::NoReplica) };
        self.busy_until = rests_until(&group, sight);
        if self.busy_until.is_some() {
            return Err(PlanError::AllResting);
        }
        let room = self.room(sight);
        // Slots that others leave to the tenant are tried before all others.
        let first = tenant_share::first_kept_for(sight).filter(|_| room.can_wait);
        let reads_caches = sight.route_rules().reads_caches;
        // The steps of a journey never come here without a number.
        let ticket = self.ticket.unwrap_or_default();
        let mut loads = sight.loads(room, reads_caches);
        self.cached_longest = reads_caches.then(|| loads.cached_blocks_max());
        let inquiry = sight.inquiry();
        // An adapter in memory moves no session and no hashed key.
        let adapter = group.adapter.filter(|_| inquiry.session.or(inquiry.affinity).is_none());
        let adapter = adapter.map(|adapter| {
            let candidates = group.group.candidates().iter();
            AdapterRoom::among(adapter, candidates.map(|it| loads.in_flight(it.slot)))
        });
        let mut plan_within = |room: Room| {
            loads.set_room(room);
            let moment = Moment { now, loads: &loads, ticket, rng };
            match plan(inquiry, group.group, &self.tried, moment) {
                Plan::Attempt(attempt) => Ok(attempt),
                Plan::Refuse(refusal) => Err(refusal),
            }
        };
        // Once the slots at replicas that have the adapter are taken, all others count, too.
        let mut plan_by_adapter = |room: Room| match adapter {
            Some(_) => plan_within(Room { adapter, ..room })
                .map(for_adapter)
                .or_else(|_| plan_within(room)),
            None => plan_within(room),
        };
        match first {
            Some(_) => plan_by_adapter(Room { first, ..room }).or_else(|_| plan_by_adapter(room)),
            None => plan_by_adapter(room),
        }
    }

    /// Chooses a replica of the next best standing, for a request that all others have failed: better
    /// such a replica than none.
    pub(super) fn plan_among_next<S: Sight>(
        &self,
        refusal: PlanError,
        sight: &S,
        now: Instant,
        rng: &mut fastrand::Rng,
    ) -> Option<Attempt> {
        if refusal != PlanError::AllTried || self.attempts == 0 || sight.pinned().is_some() {
            return None;
        }
        let next = sight.group()?.next?;
        let loads = sight.loads(self.room(sight), false);
        let ticket = self.ticket.unwrap_or_default();
        let moment = Moment { now, loads: &loads, ticket, rng };
        match plan(sight.inquiry(), next, &self.tried, moment) {
            Plan::Attempt(attempt) => Some(attempt),
            Plan::Refuse(_) => None,
        }
    }
}

/// Returns an attempt at one of the replicas that have the request's adapter in memory.
fn for_adapter(attempt: Attempt) -> Attempt {
    // These reasons say more: the one is no choice, and the other one is about the adapter's prompts.
    let is_kept = matches!(attempt.reason, Reason::Only | Reason::Cached);
    Attempt { reason: if is_kept { attempt.reason } else { Reason::Adapter }, ..attempt }
}

/// Returns when the first replica takes the request, if all of them have asked for a pause.
fn rests_until<S: Sight>(group: &ReplicaGroup<'_>, sight: &S) -> Option<Instant> {
    let candidates = group.group.candidates();
    group
        .busy_until
        .or_else(|| tenant_share::all_rest_until(sight, candidates, sight.tenant()?.tenant))
}
