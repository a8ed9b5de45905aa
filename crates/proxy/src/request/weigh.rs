//! The own region against the others, for one request.

use std::sync::atomic::Ordering;
use std::time::Instant;

use smallvec::SmallVec;
use spillway_protocol::{ErrorKind, GatewayError};
use spillway_route::{
    Access, Attempt, Moment, OwnRegion, Refusal, RegionCandidate, ShedReason, SpillPlan,
    SpillVerdict, Waiting, late_ms, spill,
};
use spillway_types::{ModelName, RegionName, Speed};

use crate::knowledge::{Cached, CachedElsewhere};
use crate::request::dispatch::Dispatch;
use crate::request::forward::Way;
use crate::request::so_far::SoFar;

/// Milliseconds by which the region is preferred that served the conversation before, beside what it
/// need not read again: as much as a session is worth among replicas.
const CONVERSATION_MS: f32 = 100.0;

/// Everything that one decision between regions goes by.
#[derive(Debug)]
pub(super) struct Scales {
    pub(super) own: OwnRegion,
    pub(super) others: SmallVec<[RegionCandidate; 8]>,
    /// What reading the prompt would take in each of the others if nothing were hot there; empty if
    /// nothing is.
    cold_ms: SmallVec<[f32; 8]>,
    /// The own region is to be empty, and would serve.
    is_leaving: bool,
}

impl Dispatch<'_> {
    /// Weighs the own region, with what its replicas can do, against the others.
    pub(super) fn weigh(&mut self, planned: Result<Attempt, Refusal>, so_far: &SoFar) -> Way {
        self.weigh_explained(planned, so_far).0
    }

    /// The same with what was thought of the regions, if any had to be looked at.
    pub(super) fn weigh_explained(
        &mut self,
        planned: Result<Attempt, Refusal>,
        so_far: &SoFar,
    ) -> (Way, Option<SpillPlan>) {
        let inquiry = &self.prepared.inquiry;
        // A guest was weighed when it came, and goes nowhere else.
        let is_free = inquiry.hop == 0 && self.prepared.pinned.is_none();
        let late_ms = self.late_ms(planned, so_far);
        let Some(model) = inquiry.model.as_ref().filter(|_| is_free) else {
            let late = late_ms.map(|late_ms| Way::Late(ShedReason::Late, late_ms));
            return (late.unwrap_or(Way::Own), None);
        };
        let is_late = planned == Err(Refusal::DeadlinePassed);
        let is_waitable = match planned {
            Err(Refusal::AllBusy) => true,
            Err(Refusal::AllResting) => self.waits_for_rest(so_far),
            _ => false,
        };
        if is_late || (planned.is_err() && !is_waitable && self.is_alone()) {
            return (Way::Own, None);
        }
        let waitings = &self.worker.gateway.waiting;
        let is_idle = planned.is_ok() && waitings.is_quiet() && self.regions.is_roomy(model);
        let is_at_home = self.session_home().is_none();
        if is_idle
            && is_at_home
            && late_ms.is_none()
            && !self.is_barred()
            && !self.could_gain(planned)
        {
            return (Way::Own, None);
        }
        let scales = self.scales(&model.clone(), planned, so_far);
        if is_at_home && scales.own.keeps(&scales.others, &self.regions.terms) {
            return (Way::Own, None);
        }
        let plan = self.spill(&scales);
        // Without a limit the replica's own queue is the place to wait. And an evacuated region serves
        // before nobody does.
        let has_no_limit = planned.is_ok() && scales.own.places.is_none();
        let queues_there = scales.own.late_ms.is_none() && (scales.is_leaving || has_no_limit);
        let way = match (self.way(&plan, queues_there, scales.own.prefill_ms), scales.own.late_ms) {
            (Way::Shed(reason, _), Some(late_ms)) => Way::Late(reason, late_ms),
            (Way::Wait { .. }, _)
                if let SpillVerdict::Wait { wait_ms } = plan.verdict
                    && let Some(reason) = self.is_beyond_patience(wait_ms, so_far) =>
            {
                Way::Shed(reason, wait_ms)
            }
            (way, _) => way,
        };
        (way, Some(plan))
    }

    /// Milliseconds until the first token at the replica that was chosen, if that is predicted to be too
    /// late. Not of one that has been asked before: what was done for it already would be lost.
    fn late_ms(&self, planned: Result<Attempt, Refusal>, so_far: &SoFar) -> Option<f32> {
        let attempt = planned.ok().filter(|_| so_far.attempts == 0)?;
        let inquiry = &self.prepared.inquiry;
        let deadline_ms = inquiry.deadline.remaining(Instant::now()).as_secs_f32() * 1e3;
        // The objective is one of the client's own region.
        let objective_ms = self.first_token_left_ms().filter(|_| inquiry.hop == 0);
        let left_ms = objective_ms.map_or(deadline_ms, |left_ms| left_ms.min(deadline_ms));
        late_ms(attempt.prediction, self.view.board().speed(attempt.slot).trust, left_ms)
    }

    /// What is known of the own region and of the others at this moment.
    pub(super) fn scales(
        &self,
        model: &ModelName,
        planned: Result<Attempt, Refusal>,
        so_far: &SoFar,
    ) -> Scales {
        let mut own = self.own_region(model, planned, so_far);
        let is_leaving = self.regions.is_evacuated && planned.is_ok() && !self.is_barred();
        if is_leaving {
            own.replicas = 0;
        }
        let none = SmallVec::new();
        let mut scales = Scales { own, others: none, cold_ms: SmallVec::new(), is_leaving };
        if self.is_alone() || self.regions.asked_max == 0 {
            return scales;
        }
        let hot = so_far.cached_longest.map(|_| {
            let knowledge = self.worker.gateway.knowledge();
            knowledge.look_up_hot(&self.prepared.inquiry)
        });
        let is_hot = hot.as_ref().is_some_and(CachedElsewhere::is_any);
        let session_home = self.session_home();
        if scales.own.has_room() && !is_hot && session_home.is_none() {
            // Nothing could be gained elsewhere.
            return scales;
        }
        let residency = &self.prepared.inquiry.residency;
        let is_asked_out = so_far.refused.len() >= self.regions.asked_max;
        let answered = |region: &RegionName| match so_far.has_refused(region) {
            _ if so_far.barred_by.contains(region) => Access::Unreachable,
            is_refused if is_refused || is_asked_out => Access::Refused,
            _ => Access::Ready,
        };
        scales.others = self.regions.candidates((model, residency), answered);
        self.add_homes(&mut scales, (session_home, model));
        if let Some(hot) = hot {
            let own_speed = self.own_speed(model, planned);
            self.add_prefill(&mut scales, &hot, (model, own_speed));
        }
        scales
    }

    /// The other region where the request's session is at home.
    fn session_home(&self) -> Option<&RegionName> {
        self.prepared.target.session_region.as_ref()
    }

    /// Says which of the other regions served the request's session, and which its conversation.
    fn add_homes(
        &self,
        scales: &mut Scales,
        (session_home, model): (Option<&RegionName>, &ModelName),
    ) {
        let inquiry = &self.prepared.inquiry;
        let gateway = &self.worker.gateway;
        let served_in = gateway.conversations.find(inquiry.prefix.as_slice());
        for (other, known) in scales.others.iter_mut().zip(&self.regions.others) {
            other.is_home = session_home == Some(&known.name);
            let Some(served_in) = served_in.as_ref().filter(|it| it.region == known.name) else {
                continue;
            };
            // What reading the rest takes is part of the cost only where caches are known.
            let speed = known.models.get(model).map(|model| model.speed).unwrap_or_default();
            let read_ms = |blocks| gateway.knowledge().prefill_ms(inquiry, blocks, &speed);
            other.home_ms = CONVERSATION_MS + (read_ms(0) - read_ms(served_in.blocks)).max(0.0);
        }
    }

    /// Decides between the regions.
    pub(super) fn spill(&mut self, scales: &Scales) -> SpillPlan {
        let mut same_dice = self.dice.clone();
        let plan = self.spill_with(scales, &scales.others, None);
        if !scales.cold_ms.is_empty() {
            let mut cold = scales.others.clone();
            for (other, cold_ms) in cold.iter_mut().zip(&scales.cold_ms) {
                other.prefill_ms = *cold_ms;
            }
            let without = self.spill_with(scales, &cold, Some(&mut same_dice));
            let is_changed = destination(&plan) != destination(&without);
            self.worker.gateway.knowledge().spilled(is_changed);
        }
        plan
    }

    fn spill_with(
        &mut self,
        scales: &Scales,
        others: &[RegionCandidate],
        dice: Option<&mut fastrand::Rng>,
    ) -> SpillPlan {
        let loads = self.view.loads(Cached::NOTHING, self.room());
        let rng = dice.unwrap_or(&mut self.dice);
        let mut moment = Moment { now: Instant::now(), loads: &loads, ticket: 0, rng };
        spill(&self.prepared.inquiry, &scales.own, others, &self.regions.terms, &mut moment)
    }

    fn own_region(
        &self,
        model: &ModelName,
        planned: Result<Attempt, Refusal>,
        so_far: &SoFar,
    ) -> OwnRegion {
        let pin = self.prepared.target.pin.as_ref();
        let group = self.prepared.route.group_for(Some(model), pin).ok().flatten();
        let waitings = &self.worker.gateway.waiting;
        let mut waiting = match (&so_far.stay, so_far.has_turn) {
            // Those behind it wait for it.
            (_, true) => Waiting { ahead: 0, wait_ms: None, all: 0, has_room: true },
            (Some(stay), false) => stay.waiting(),
            (None, false) => {
                let rate_per_s = |tokens| self.certain_rate(tokens);
                waitings.before(&self.asking(model, so_far), rate_per_s)
            }
        };
        waiting.ahead = self.rivals(waiting.ahead, so_far.stay.is_some());
        let mut own = self.regions.own(model, (&self.view, group, self.room()), waiting);
        own.first_token_ms_max = self.first_token_left_ms();
        match planned {
            Ok(_) => {}
            Err(Refusal::AllBusy) => own.places = Some(0),
            Err(Refusal::AllResting) if self.waits_for_rest(so_far) => {
                own.places = Some(0);
                // Those that rest are no candidates, and yet they are there.
                own.replicas = own.replicas.max(1);
                let rest = so_far.busy_until.map(|it| it.saturating_duration_since(Instant::now()));
                let rest_ms =
                    rest.map_or(0, |rest| u32::try_from(rest.as_millis()).unwrap_or(u32::MAX));
                own.waiting.wait_ms =
                    Some(own.waiting.wait_ms.map_or(rest_ms, |ms| ms.max(rest_ms)));
            }
            Err(_) => own.replicas = 0,
        }
        own.late_ms = self.late_ms(planned, so_far);
        let has_room = own.has_room();
        own.prefill_ms = self.own_prefill_ms(model, planned, (so_far, has_room));
        if self.is_barred() { barred(own) } else { own }
    }

    /// What reading the prompt takes here: at the replica that was chosen, with its wait if the region
    /// has room and so no other, or if none was chosen, at the one that has most of it cached. 0
    /// where caches make no difference to the policy, as with other regions then.
    fn own_prefill_ms(
        &self,
        model: &ModelName,
        planned: Result<Attempt, Refusal>,
        (so_far, has_room): (&SoFar, bool),
    ) -> f32 {
        let prediction = planned.ok().and_then(|attempt| attempt.prediction);
        match (prediction, so_far.cached_longest) {
            (Some(prediction), _) if has_room => prediction.wait_ms + prediction.prefill_ms,
            (Some(prediction), _) => prediction.prefill_ms,
            (None, Some(blocks)) => {
                let speed = self.own_speed(model, planned);
                let knowledge = self.worker.gateway.knowledge();
                knowledge.prefill_ms(&self.prepared.inquiry, blocks, &speed)
            }
            (None, None) => 0.0,
        }
    }

    /// Whether the chosen replica is predicted to take so long that a region with the prompt in its
    /// cache could be worth the way.
    fn could_gain(&self, planned: Result<Attempt, Refusal>) -> bool {
        let prediction = planned.ok().and_then(|attempt| attempt.prediction);
        let gain_min_ms = self.regions.terms.gain_min_ms;
        prediction.is_some_and(|prediction| {
            !self.is_alone() && prediction.wait_ms + prediction.prefill_ms > gain_min_ms
        })
    }

    /// How fast this region's replicas are, or the one that was chosen.
    fn own_speed(&self, model: &ModelName, planned: Result<Attempt, Refusal>) -> Speed {
        let known = self.regions.own.get(model).map(|own| own.speed);
        let chosen = || planned.ok().map(|attempt| self.view.board().speed(attempt.slot));
        known.filter(|speed| speed.trust > 0.0).or_else(chosen).unwrap_or_default()
    }

    /// Says of each other region what reading the prompt would take there, by what is hot there.
    /// A region that does not tell how fast it is counts as fast as this one.
    fn add_prefill(
        &self,
        scales: &mut Scales,
        hot: &CachedElsewhere,
        (model, own_speed): (&ModelName, Speed),
    ) {
        let knowledge = self.worker.gateway.knowledge();
        let inquiry = &self.prepared.inquiry;
        for (other, known) in scales.others.iter_mut().zip(&self.regions.others) {
            let speed = known.models.get(model).map(|model| model.speed);
            let speed = speed.filter(|speed| speed.trust > 0.0).unwrap_or(own_speed);
            other.prefill_ms = knowledge.prefill_ms(inquiry, hot.blocks(&known.name), &speed);
            if hot.is_any() {
                scales.cold_ms.push(knowledge.prefill_ms(inquiry, 0, &speed));
            }
        }
    }

    fn is_alone(&self) -> bool {
        let residency = &self.prepared.inquiry.residency;
        !self.regions.others.iter().any(|other| other.is_allowed(residency))
    }

    /// What a request is told that was about to be served here though it may not be. Counts it.
    pub(super) fn barred_here(&self) -> GatewayError {
        let gateway = &self.worker.gateway;
        gateway.counters.residency_sent.fetch_add(1, Ordering::Relaxed);
        let (own, asked) = (&gateway.config.region, &self.prepared.inquiry.residency);
        let message = match self.is_barred() {
            true => format!("the request may be served {asked}, which {own} is not"),
            false => format!("its tenant does not allow {own} any more"),
        };
        GatewayError::new(ErrorKind::RegionNotAllowed, message)
    }

    /// Whether its tenant has been forbidden this region since the request came: it may have waited.
    pub(super) fn is_barred_by_now(&self) -> bool {
        let gateway = &self.worker.gateway;
        let here = (gateway.config.region.as_str(), self.regions.own_country);
        let tenant = self.prepared.inquiry.tenant.as_ref();
        !tenant.is_none_or(|tenant| gateway.doorkeeper.allows(tenant, here))
    }

    /// Whether the request may not be served by this region.
    pub(super) fn is_barred(&self) -> bool {
        let own = self.worker.gateway.config.region.as_str();
        !self.prepared.inquiry.residency.allows(own, self.regions.own_country)
    }
}

/// The region that a request goes to; `None` if it stays, waits or is shed.
fn destination(plan: &SpillPlan) -> Option<usize> {
    match &plan.verdict {
        SpillVerdict::Forward(ways) => ways.first().copied(),
        SpillVerdict::Own | SpillVerdict::Wait { .. } | SpillVerdict::Shed { .. } => None,
    }
}

/// The own region for a request whose key is not for it: nothing serves here, and nothing waits.
fn barred(own: OwnRegion) -> OwnRegion {
    let waiting = Waiting { ahead: 0, wait_ms: None, all: 0, has_room: false };
    OwnRegion { replicas: 0, places: Some(0), late_ms: None, waiting, ..own }
}
