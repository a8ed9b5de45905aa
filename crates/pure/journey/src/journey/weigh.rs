//! Comparison of the own region with the others.

use std::time::Instant;

use spillway_route::{
    Attempt, ByRegion, Degraded, Moment, OwnRegion, PlanError, RegionCandidate, ShedReason,
    SpillPlan, SpillReason, SpillVerdict, TimeLeft, Waiting, is_known, late_ms, spill,
};
use spillway_types::{ModelLoad, ModelName, RegionName, Speed};

use super::Journey;
use crate::decision::RequestWay;
use crate::residency::is_by_request;
use crate::sight::{Conversation, Sight};
use crate::standing::Position;
use crate::tenant_share;

/// Milliseconds by which the region is preferred that served the conversation before, beside the
/// reading that it saves: as much as a session is worth among replicas.
const CONVERSATION_MS: f32 = 100.0;

/// Multiples of the requests that run at each replica of another region from which on the own one is
/// busier, and so much busier that a full replica here says nothing of those there.
const BUSIER: f32 = 1.1;
const MUCH_BUSIER: f32 = 1.4;

/// Regions that one decision compares.
#[derive(Clone, Debug)]
struct Scales {
    own: OwnRegion,
    others: ByRegion<RegionCandidate>,
    /// Milliseconds to read the prompt in each of the others if nothing were cached there; empty if
    /// nothing is.
    cold_ms: ByRegion<f32>,
    /// True if the own region is evacuated, and would otherwise serve.
    is_leaving: bool,
}

impl Journey {
    /// Compares the own region, with what its replicas can do, with the others. Also returns the
    /// comparison, if one was needed.
    pub(super) fn weigh<S: Sight>(
        &mut self,
        planned: Result<Attempt, PlanError>,
        sight: &S,
        now: Instant,
        rng: &mut fastrand::Rng,
    ) -> (RequestWay, Option<SpillPlan>) {
        let inquiry = sight.inquiry();
        let late_ms = self.late_ms(planned, sight, now);
        // A guest was compared when it came, and goes nowhere else.
        let is_free = inquiry.hop == 0 && sight.pinned().is_none();
        let Some(model) = inquiry.model.as_ref().filter(|_| is_free) else {
            let late = |late_ms| RequestWay::TooLate { reason: ShedReason::Late, late_ms };
            return (late_ms.map_or(RequestWay::Own, late), None);
        };
        if self.stays_anyway(planned, late_ms, sight, now) {
            return (RequestWay::Own, None);
        }
        let scales = self.scales(model, planned, sight, now);
        let is_at_home = sight.session_region().is_none();
        if is_at_home && scales.own.keeps(&scales.others, sight.spill_terms()) {
            return (RequestWay::Own, None);
        }
        let mut plan = self.spill(&scales, sight, now, rng);
        if plan.reason == SpillReason::NoReplica {
            plan.reason = why_none_here(&scales, sight);
        }
        (self.way(&plan, &scales, sight, now), Some(plan))
    }

    /// Returns true if no comparison is needed: no other region could help, or none could be
    /// better.
    fn stays_anyway<S: Sight>(
        &self,
        planned: Result<Attempt, PlanError>,
        late_ms: Option<f32>,
        sight: &S,
        now: Instant,
    ) -> bool {
        match planned {
            // No region could answer in time any more.
            Err(PlanError::DeadlinePassed) => true,
            // Another region may have room, and else the request may wait here.
            Err(PlanError::AllBusy) => false,
            Err(PlanError::AllResting) if self.waits_for_rest(sight, now) => false,
            Err(_) => sight.is_alone(),
            Ok(attempt) => {
                let is_roomy = |model| sight.is_roomy(model);
                sight.is_quiet()
                    && sight.inquiry().model.as_ref().is_some_and(is_roomy)
                    && sight.session_region().is_none()
                    && late_ms.is_none()
                    && is_by_request(sight.permission())
                    && !could_gain(attempt, sight)
            }
        }
    }

    /// Returns the milliseconds until the first token at the chosen replica, or until the end of a
    /// reply in one piece, if that is predicted to be too late. `None` for a request that was sent
    /// before: the work done for it would be lost.
    fn late_ms<S: Sight>(
        &self,
        planned: Result<Attempt, PlanError>,
        sight: &S,
        now: Instant,
    ) -> Option<f32> {
        let attempt = planned.ok().filter(|_| self.attempts == 0)?;
        let inquiry = sight.inquiry();
        let deadline_ms = inquiry.deadline.remaining(now).as_secs_f32() * 1e3;
        // The objective holds in the client's own region only.
        let objective_ms = self.first_token_left_ms(sight, now).filter(|_| inquiry.hop == 0);
        let left = TimeLeft { objective_ms, deadline_ms };
        late_ms(attempt.prediction, sight.replica_speed(attempt.slot).trust, left)
    }

    /// Collects the state of the own region and of the others.
    fn scales<S: Sight>(
        &self,
        model: &ModelName,
        planned: Result<Attempt, PlanError>,
        sight: &S,
        now: Instant,
    ) -> Scales {
        let mut own = self.own_region(model, planned, sight, now);
        let is_leaving =
            sight.is_evacuated() && planned.is_ok() && is_by_request(sight.permission());
        if is_leaving {
            // So any region with room goes before this one; `way` still serves here if there is
            // none.
            own.replicas = 0;
        }
        let (others, cold_ms) = (ByRegion::new(), ByRegion::new());
        let mut scales = Scales { own, others, cold_ms, is_leaving };
        if sight.is_alone() || sight.regions_asked_max() == 0 {
            return scales;
        }
        let is_alike = self.cached_longest.is_none();
        if scales.own.has_room() && is_alike && sight.session_region().is_none() {
            // Nothing is known that could make another region better.
            return scales;
        }
        let asked_max = sight.regions_asked_max();
        let access = |region: &RegionName| self.refusals.access(region, asked_max);
        scales.others = sight.others(model, &access);
        self.read_as_others(&mut scales, model, planned, sight);
        let conversation = sight.conversation();
        add_homes(&mut scales, conversation.as_ref(), sight);
        add_rest(&mut scales, model, own_speed(model, planned, sight), sight);
        if !is_alike || scales.own.replicas == 0 {
            let speed = own_speed(model, planned, sight);
            add_reading(&mut scales, model, speed, conversation.as_ref(), sight);
        }
        scales
    }

    fn own_region<S: Sight>(
        &self,
        model: &ModelName,
        planned: Result<Attempt, PlanError>,
        sight: &S,
        now: Instant,
    ) -> OwnRegion {
        let rate_per_s = |tokens| self.certain_rate(sight, tokens);
        let waiting = match self.standing.position {
            // The requests behind it wait for it.
            Position::AtTurn => Waiting { ahead: 0, wait_ms: None, all: 0, has_room: true },
            position => {
                let waiting = sight.waiting(self.standing.claim, &rate_per_s);
                let ahead = tenant_share::rivals(sight, waiting.ahead, position);
                Waiting { ahead, ..waiting }
            }
        };
        let mut own = sight.own(model, self.room(sight), waiting);
        own.first_token_ms_max = self.first_token_left_ms(sight, now);
        match planned {
            Ok(_) => {}
            Err(PlanError::AllBusy) => own.slots = Some(0),
            Err(PlanError::AllResting) if self.waits_for_rest(sight, now) => {
                own.slots = Some(0);
                // Replicas that rest are no candidates, and yet they are there.
                own.replicas = own.replicas.max(1);
                let rest = self.busy_until.map(|until| until.saturating_duration_since(now));
                let rest_ms =
                    rest.map_or(0, |rest| u32::try_from(rest.as_millis()).unwrap_or(u32::MAX));
                let wait_ms = own.waiting.wait_ms.map_or(rest_ms, |ms| ms.max(rest_ms));
                own.waiting.wait_ms = Some(wait_ms);
            }
            // No replica here takes the request while it waits, so only other regions are left.
            Err(_) => own.replicas = 0,
        }
        own.late_ms = self.late_ms(planned, sight, now);
        own.rest_ms = rest_ms(&own_speed(model, planned, sight), sight);
        self.add_own_reading(&mut own, model, planned, sight);
        if is_by_request(sight.permission()) { own } else { outside_residency(own) }
    }

    /// Adds the reading of the prompt here, and its cost to the requests that run here. At the
    /// chosen replica: with its wait, if the region has room and so no other wait. Without one: at
    /// the replica that has most of it cached. Nothing where the policy does not read caches, as
    /// for other regions then.
    fn add_own_reading<S: Sight>(
        &self,
        own: &mut OwnRegion,
        model: &ModelName,
        planned: Result<Attempt, PlanError>,
        sight: &S,
    ) {
        let prediction = planned.ok().and_then(|attempt| attempt.prediction);
        let (prefill_ms, running) = match (prediction, self.cached_longest) {
            (Some(prediction), _) => (prediction.prefill_ms, prediction.running),
            (None, Some(blocks)) => {
                let speed = own_speed(model, planned, sight);
                (sight.prefill_ms(blocks, &speed), own.report.load.running_each())
            }
            (None, None) => return,
        };
        own.stall_ms = kappa(sight) * running * prefill_ms;
        let wait_ms = prediction.filter(|_| own.has_room()).map_or(0.0, |it| it.wait_ms);
        own.prefill_ms = wait_ms + prefill_ms;
    }

    /// Reads the prompt here where most of it is cached, with the mean load, as it is read in the other
    /// regions: what keeps the request from that replica here would keep it from theirs as well. Not so
    /// in a region that is busier than another, where the chosen replica counts as it is.
    fn read_as_others<S: Sight>(
        &self,
        scales: &mut Scales,
        model: &ModelName,
        planned: Result<Attempt, PlanError>,
        sight: &S,
    ) {
        let prediction = planned.ok().and_then(|attempt| attempt.prediction);
        let (Some(here), Some(blocks)) = (prediction, self.cached_longest) else { return };
        let loads = scales.others.iter().map(|other| &other.report.load);
        let each = loads.filter(|load| load.replicas > 0).map(ModelLoad::running_each);
        let Some(least) = each.reduce(f32::min) else { return };
        let running = scales.own.report.load.running_each();
        let busier = (running / least.max(1.0) - BUSIER) / (MUCH_BUSIER - BUSIER);
        let mixed = |alike: f32, here: f32| alike + (here - alike) * busier.clamp(0.0, 1.0);
        let speed = own_speed(model, planned, sight);
        let cached_ms = sight.prefill_ms(blocks, &speed).min(here.prefill_ms);
        let prefill_ms = mixed(cached_ms, here.prefill_ms);
        scales.own.stall_ms = kappa(sight) * mixed(running, here.running) * prefill_ms;
        scales.own.prefill_ms += prefill_ms - here.prefill_ms;
    }

    fn spill<S: Sight>(
        &mut self,
        scales: &Scales,
        sight: &S,
        now: Instant,
        rng: &mut fastrand::Rng,
    ) -> SpillPlan {
        // Only the caches may make the difference that is noted, not chance.
        let mut same_dice = rng.clone();
        let plan = self.spill_with(scales, sight, now, rng);
        if !scales.cold_ms.is_empty() {
            let mut cold = scales.clone();
            for (other, cold_ms) in cold.others.iter_mut().zip(&scales.cold_ms) {
                // The stall is in proportion to the reading; without any reading both are 0.
                other.stall_ms *=
                    if other.prefill_ms > 0.0 { cold_ms / other.prefill_ms } else { 0.0 };
                other.prefill_ms = *cold_ms;
            }
            let without = self.spill_with(&cold, sight, now, &mut same_dice);
            let is_changed = destination(&plan) != destination(&without);
            self.notes.cache_comparisons += 1;
            self.notes.cache_changes += u32::from(is_changed);
        }
        plan
    }

    fn spill_with<S: Sight>(
        &self,
        scales: &Scales,
        sight: &S,
        now: Instant,
        rng: &mut fastrand::Rng,
    ) -> SpillPlan {
        let loads = sight.loads(self.room(sight), false);
        let mut moment = Moment { now, loads: &loads, ticket: 0, rng };
        spill(sight.inquiry(), &scales.own, &scales.others, sight.spill_terms(), &mut moment)
    }

    /// Turns a comparison of regions into the way of this request.
    fn way<S: Sight>(
        &self,
        plan: &SpillPlan,
        scales: &Scales,
        sight: &S,
        now: Instant,
    ) -> RequestWay {
        let own = &scales.own;
        // Without a limit the replica's own queue is the place to wait. An evacuated region serves
        // before no region does.
        let has_no_limit = own.replicas > 0 && own.slots.is_none();
        let queues_there = own.late_ms.is_none() && (scales.is_leaving || has_no_limit);
        let shed = |reason, predicted_ms: f32| match own.late_ms {
            Some(late_ms) => RequestWay::TooLate { reason, late_ms },
            None => RequestWay::Shed { reason, predicted_ms },
        };
        match &plan.verdict {
            SpillVerdict::Own => RequestWay::Own,
            SpillVerdict::Forward(ways) => match ways.first() {
                Some(&index) => RequestWay::Region { index, reason: plan.reason },
                None => RequestWay::Own,
            },
            // A reply that comes too late is of no use, wherever the request would wait.
            SpillVerdict::Shed { wait_ms, .. } if plan.reason == SpillReason::Slo => {
                shed(ShedReason::Slo, *wait_ms)
            }
            SpillVerdict::Wait { .. } | SpillVerdict::Shed { .. } if queues_there => {
                RequestWay::Own
            }
            SpillVerdict::Wait { wait_ms } if self.is_beyond_degraded(*wait_ms, sight) => {
                shed(ShedReason::Degraded, *wait_ms)
            }
            SpillVerdict::Wait { wait_ms } => match self.is_beyond_patience(*wait_ms, sight, now) {
                Some(reason) => RequestWay::Shed { reason, predicted_ms: *wait_ms },
                None => RequestWay::Wait { prefill_ms: own.prefill_ms },
            },
            SpillVerdict::Shed { wait_ms, .. } => {
                shed(plan.reason.shed().unwrap_or(ShedReason::QueueFull), *wait_ms)
            }
        }
    }

    /// Returns true if so many of the model's replicas are missing that the request is not to wait
    /// for so long.
    fn is_beyond_degraded<S: Sight>(&self, wait_ms: f32, sight: &S) -> bool {
        let Some(group) = sight.group() else { return false };
        let rules = sight.route_rules();
        let degraded = Degraded {
            healthy_permille: group.healthy_permille,
            below_permille: rules.degraded_below_permille,
        };
        degraded.refuses(sight.inquiry().priority, wait_ms, rules.wait_ms_max as f32)
    }
}

/// Returns true if the request costs so much at the chosen replica that another region could be
/// worth the way.
fn could_gain<S: Sight>(attempt: Attempt, sight: &S) -> bool {
    let gain_min_ms = sight.spill_terms().gain_min_ms;
    attempt.prediction.is_some_and(|prediction| {
        let stalled = 1.0 + kappa(sight) * prediction.running;
        !sight.is_alone() && prediction.wait_ms + stalled * prediction.prefill_ms > gain_min_ms
    })
}

/// Returns the cost of reading to each request that runs at a replica, as a part of the reading
/// time.
fn kappa<S: Sight>(sight: &S) -> f32 {
    sight.group().map_or(0.0, |group| group.group.kappa())
}

/// Marks the region that served the request's session, and the one that served its conversation.
fn add_homes<S: Sight>(scales: &mut Scales, conversation: Option<&Conversation>, sight: &S) {
    let session_region = sight.session_region();
    for (index, other) in scales.others.iter_mut().enumerate() {
        let name = sight.region(index);
        other.is_home = session_region == Some(name);
        if conversation.is_some_and(|served| served.region == *name) {
            other.home_ms = CONVERSATION_MS;
        }
    }
}

/// Adds the time to read the prompt in each other region, by what is cached there, and its cost to
/// the requests that run there. A region that does not report its speed counts as fast as this one.
fn add_reading<S: Sight>(
    scales: &mut Scales,
    model: &ModelName,
    own_speed: Speed,
    conversation: Option<&Conversation>,
    sight: &S,
) {
    let (hot, forwarded) = (sight.hot_blocks(), sight.forwarded_blocks());
    let kappa = kappa(sight);
    let blocks = |known: &Option<ByRegion<u32>>, index: usize| {
        known.as_ref().and_then(|known| known.get(index).copied()).unwrap_or(0)
    };
    for (index, other) in scales.others.iter_mut().enumerate() {
        let speed = sight.speed(index, model).filter(|speed| speed.trust > 0.0);
        let speed = speed.unwrap_or(own_speed);
        // Prompts that the region served to a client of another node are not in this node's index.
        let served = conversation.filter(|served| served.region == *sight.region(index));
        let forwarded = blocks(&forwarded, index).max(served.map_or(0, |served| served.blocks));
        let hot = blocks(&hot, index);
        let load = &other.report.load;
        // Requests that this node sent there since the report are taken to be like this one. A
        // region with replicas of its own compares queues, which include these requests already.
        let more = match scales.own.replicas {
            0 => other.report.change().max(0.0) / load.replicas.max(1) as f32,
            _ => 0.0,
        };
        // Most of what a conversation has there is its own: its next turn follows it.
        other.is_shared = hot > 0 && 5 * hot >= 4 * forwarded;
        other.prefill_ms = sight.prefill_ms(hot.max(forwarded), &speed);
        other.stall_ms = kappa * (load.running_each() + more) * other.prefill_ms;
        other.pending_ms =
            load.pending_tokens.unwrap_or(0.0) * speed.prefill_ms + more * other.prefill_ms;
        scales.cold_ms.push(sight.prefill_ms(0, &speed));
    }
}

/// Adds the time to generate the rest of a reply in one piece in each other region. A region that
/// does not report its speed counts as fast as this one.
fn add_rest<S: Sight>(scales: &mut Scales, model: &ModelName, own_speed: Speed, sight: &S) {
    for (index, other) in scales.others.iter_mut().enumerate() {
        let speed = sight.speed(index, model).filter(|speed| speed.trust > 0.0);
        other.rest_ms = rest_ms(&speed.unwrap_or(own_speed), sight);
    }
}

/// Returns the milliseconds from the first token to the end of a reply in one piece; 0 for a stream,
/// and for a speed that is a mere guess.
fn rest_ms<S: Sight>(speed: &Speed, sight: &S) -> f32 {
    let is_learned = speed.is_decode_known && is_known(speed.trust);
    let tokens = sight.inquiry().whole_tokens.filter(|_| is_learned);
    tokens.map_or(0.0, |tokens| tokens.saturating_sub(1) as f32 * speed.decode_ms)
}

/// Returns the speed of this region's replicas; if unknown, of the chosen one.
fn own_speed<S: Sight>(model: &ModelName, planned: Result<Attempt, PlanError>, sight: &S) -> Speed {
    let known = sight.own_speed(model).filter(|speed| speed.trust > 0.0);
    let chosen = || planned.ok().map(|attempt| sight.replica_speed(attempt.slot));
    known.or_else(chosen).unwrap_or_default()
}

/// Returns the reason for which the own region counts as one without replicas.
fn why_none_here<S: Sight>(scales: &Scales, sight: &S) -> SpillReason {
    if !is_by_request(sight.permission()) {
        SpillReason::OutsideResidency
    } else if scales.is_leaving {
        SpillReason::Evacuated
    } else {
        SpillReason::NoReplica
    }
}

/// Returns the region that a request goes to; `None` if it stays, waits or is shed.
fn destination(plan: &SpillPlan) -> Option<usize> {
    match &plan.verdict {
        SpillVerdict::Forward(ways) => ways.first().copied(),
        SpillVerdict::Own | SpillVerdict::Wait { .. } | SpillVerdict::Shed { .. } => None,
    }
}

/// Returns the own region for a request that it may not serve: without replicas, and without room
/// to wait.
fn outside_residency(own: OwnRegion) -> OwnRegion {
    let waiting = Waiting { ahead: 0, wait_ms: None, all: 0, has_room: false };
    OwnRegion { replicas: 0, slots: Some(0), late_ms: None, waiting, ..own }
}
