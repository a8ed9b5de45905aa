//! What would become of a request, without sending it.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use http::{HeaderMap, Method, Request};
use http_body_util::{BodyExt, Full};
use serde::Serialize;
use spillway_protocol::{Echo, Endpoint, ErrorKind, GatewayError};
use spillway_route::{
    Attempt, Cost, Fit, Judged, Moment, Objection, Obstacle, Reason, Refusal, SpillCost, SpillPlan,
    Weighed, plan_explained,
};
use spillway_types::{Prediction, TenantName};

use crate::request::dispatch::Dispatch;
use crate::request::forward::Way;
use crate::request::grpc;
use crate::request::keepsakes::begin_session;
use crate::request::prepare::{Surroundings, prepare};
use crate::request::so_far::SoFar;
use crate::request::tenant::tenant_key;
use crate::wire_body::{BoxError, WireBody};
use crate::worker::Worker;

/// Replicas that an explanation shows at most, the cheapest first; what more there are is counted.
/// Enough for a person, and small enough to be asked for while a node is busy.
const CANDIDATES_MAX: usize = 64;

/// Why a replica is not chosen that asked to be left alone for a while.
const RESTING: &str = "resting";

/// A request to be explained.
#[derive(Clone, Debug)]
pub struct ExplainRequest {
    /// Its method.
    pub method: Method,
    /// Path and query as the client would send them.
    pub path: String,
    /// Its headers; credentials among them say nothing here.
    pub headers: HeaderMap,
    /// Its whole body.
    pub body: Bytes,
    /// Whose it would be; `None` for anybody's.
    pub tenant: Option<TenantName>,
}

/// Where a request would go now, and what was thought of every place.
#[derive(Clone, Debug, Serialize)]
pub struct Explanation {
    /// Its route.
    pub route: String,
    /// The model that would serve it, aliases resolved.
    pub model: Option<String>,
    /// The policy of its route.
    pub policy: &'static str,
    /// The region of this node.
    pub region: String,
    /// Size of its prompt in bytes, as it is hashed.
    pub prompt_bytes: u32,
    /// Full blocks of its prompt.
    pub blocks: usize,
    /// Leading blocks at the replica that has most of them.
    pub cached_blocks: u32,
    /// What would be done with it.
    pub decision: Decision,
    /// The replica or region that it would go to.
    pub chosen: Option<String>,
    /// Why, e.g. `soonest`, `better`, `all_busy`, `all_resting`.
    pub reason: &'static str,
    /// Milliseconds until a replica takes requests again, if all of them asked to be left alone.
    pub rests_ms: Option<u64>,
    /// What it was predicted to take at the chosen replica.
    pub predicted: Option<Prediction>,
    /// The replicas of this region, the chosen one first and then by cost.
    pub candidates: Vec<ExplainedReplica>,
    /// Replicas that are not shown.
    pub candidates_left_out: usize,
    /// What waiting here would cost, if regions were weighed.
    pub own: Option<SpillCost>,
    /// The other regions, if they were weighed.
    pub regions: Vec<ExplainedRegion>,
}

/// What would be done with a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Decision {
    /// Send it to a replica of this region.
    Replica,
    /// Forward it to another region.
    Region,
    /// Let it wait in this node for a place.
    Wait,
    /// Turn it away for now.
    Shed,
    /// Answer that nobody can serve it.
    Refuse,
}

/// What was thought of a replica.
#[derive(Clone, Debug, Serialize)]
pub struct ExplainedReplica {
    /// Its name.
    pub name: String,
    /// Its region.
    pub region: String,
    /// Whether the request would go there.
    pub chosen: bool,
    /// Why not, e.g. `busy`, `not_chosen`.
    pub why: Option<&'static str>,
    /// All terms together, in milliseconds.
    pub cost_ms: f32,
    /// The terms, in milliseconds.
    pub terms: Cost,
    /// Tokens of the prompt, by what the replica usually makes of bytes.
    pub prompt_tokens: u32,
    /// Of these, those expected in its cache.
    pub cached_tokens: u32,
    /// Whether the request fits into its KV cache.
    pub fit: Fit,
    /// Requests of this node there.
    pub in_flight: u32,
    /// Requests that run there, as far as known.
    pub running: f32,
    /// Requests that wait there, as far as known.
    pub queued: f32,
    /// How far what was learned of its speed is trusted, 0 to 1.
    pub trust: f32,
}

/// What was thought of another region.
#[derive(Clone, Debug, Serialize)]
pub struct ExplainedRegion {
    /// Its name.
    pub name: String,
    /// Whether the request would go there.
    pub chosen: bool,
    /// Why not, e.g. `unreachable`, `not_better`.
    pub why: Option<&'static str>,
    /// All terms together, in milliseconds.
    pub cost_ms: f32,
    /// The terms, in milliseconds.
    pub terms: SpillCost,
}

/// Says what would become of a request that came now. Nothing of it is sent, no turn is taken, and
/// nothing is learned. A model that could stand in for one that can't serve is not looked at.
///
/// # Errors
/// As the request itself would fail before it is routed.
pub async fn explain(
    worker: &Arc<Worker>,
    request: ExplainRequest,
) -> Result<Explanation, GatewayError> {
    let gateway = &worker.gateway;
    let mut bare = Request::new(());
    *bare.uri_mut() = request.path.parse().map_err(|_| {
        GatewayError::new(ErrorKind::BadRequest, format!("{:?} is no path", Echo(&request.path)))
    })?;
    *bare.method_mut() = request.method;
    *bare.headers_mut() = request.headers;
    let (head, ()) = bare.into_parts();
    let endpoint = grpc::called(&head).unwrap_or_else(|| Endpoint::classify(head.uri.path()));
    let grant = match &request.tenant {
        Some(tenant) => Arc::new(gateway.doorkeeper.vouched(Some(tenant), 0)),
        None => gateway.doorkeeper.anybody(),
    };
    let view = gateway.view();
    let around = Surroundings {
        gateway,
        view: &view,
        head: &head,
        client: IpAddr::V4(Ipv4Addr::UNSPECIFIED),
        is_one_client: false,
        started: Instant::now(),
        guest: None,
        grant: &grant,
    };
    let body = Full::new(request.body).map_err(BoxError::from).boxed_unsync();
    let mut prepared = prepare(around, &mut WireBody::Link(body), endpoint).await?;
    drop(begin_session(gateway, &mut prepared, &head.headers));
    let tenant = tenant_key(gateway, &prepared);
    let dispatch = Dispatch {
        worker,
        view: Arc::clone(&view),
        regions: gateway.regions(),
        prepared: &mut prepared,
        head: &head,
        dice: gateway.dice(),
        started: around.started,
        tenant,
        is_past_guesses: false,
    };
    Ok(dispatch.explain())
}

impl Dispatch<'_> {
    fn explain(mut self) -> Explanation {
        let mut so_far = SoFar::default();
        let (planned, weighed) = self.plan_explained(&mut so_far);
        let mut explanation = self.explanation(&so_far, weighed);
        if let Some(home) = &self.prepared.target.home {
            explanation.decision = Decision::Region;
            explanation.chosen = Some(home.region.to_string());
            explanation.reason = Reason::Session.name();
            return explanation;
        }
        let (way, plan) = self.weigh_explained(planned, &so_far);
        explanation.judge(&way, plan.as_ref(), planned);
        if let (Decision::Replica, Ok(attempt)) = (explanation.decision, planned) {
            explanation.chosen = Some(self.view.replica(attempt.slot).spec().name.to_string());
        }
        if let Some(plan) = plan {
            explanation.own = plan.own;
            let regions = self.regions.others.iter().zip(&plan.regions);
            let regions = regions.map(|(other, judged)| region(other.name.as_str(), judged));
            explanation.regions = regions.collect();
        }
        explanation.mark_chosen();
        explanation.rest(planned, &so_far);
        explanation
    }

    /// Plans as a first attempt would, in the turn that the next request will have.
    fn plan_explained(&mut self, so_far: &mut SoFar) -> (Result<Attempt, Refusal>, Vec<Weighed>) {
        let inquiry = &self.prepared.inquiry;
        let pin = self.prepared.target.pin.as_ref();
        let group = self.prepared.route.group_for(inquiry.model.as_ref(), pin);
        let Ok(Some(group)) = group else { return (Err(Refusal::NoReplica), Vec::new()) };
        so_far.ticket = Some(group.memory.next_ticket());
        let knowledge = self.worker.gateway.knowledge();
        let cached = knowledge.look_up(inquiry);
        let loads = self.view.loads(cached, self.room());
        let mut dice = self.dice.clone();
        let moment = Moment {
            now: Instant::now(),
            loads: &loads,
            ticket: so_far.ticket.unwrap_or_default(),
            rng: &mut dice,
        };
        let (_, weighed) = plan_explained(inquiry, &group.group, &[], moment);
        drop(loads);
        // The decision itself is made as for any request, with what its policy may know.
        (self.plan(so_far), weighed)
    }

    fn explanation(&self, so_far: &SoFar, weighed: Vec<Weighed>) -> Explanation {
        let Self { prepared, view, worker, .. } = self;
        let region = &worker.gateway.config.region;
        let mut candidates: Vec<ExplainedReplica> = weighed
            .iter()
            .map(|weighed| {
                replica(view.replica(weighed.slot).spec().name.as_str(), region, weighed)
            })
            .collect();
        candidates.sort_by(|left, right| left.cost_ms.total_cmp(&right.cost_ms));
        candidates.extend(self.resting());
        let inquiry = &prepared.inquiry;
        Explanation {
            route: prepared.route.spec.name.to_string(),
            model: inquiry.model.as_ref().map(ToString::to_string),
            policy: prepared.route.spec.policy.name(),
            region: region.clone(),
            prompt_bytes: inquiry.prompt_bytes,
            blocks: inquiry.prefix.as_slice().len(),
            cached_blocks: so_far.cached_longest.unwrap_or_default(),
            decision: Decision::Refuse,
            chosen: None,
            reason: Refusal::NoReplica.name(),
            rests_ms: None,
            predicted: None,
            candidates,
            candidates_left_out: 0,
            own: None,
            regions: Vec::new(),
        }
    }
}

impl Dispatch<'_> {
    /// The replicas that asked to be left alone, of which nothing is predicted.
    fn resting(&self) -> Vec<ExplainedReplica> {
        let Self { prepared, view, worker, .. } = self;
        let pin = prepared.target.pin.as_ref();
        let group = prepared.route.group_for(prepared.inquiry.model.as_ref(), pin).ok().flatten();
        let slots = group.map(|group| &*group.resting).unwrap_or_default();
        let shown = slots.iter().take(CANDIDATES_MAX).map(|&slot| ExplainedReplica {
            name: view.replica(slot).spec().name.to_string(),
            region: worker.gateway.config.region.clone(),
            chosen: false,
            why: Some(RESTING),
            cost_ms: f32::NAN,
            terms: Cost::default(),
            prompt_tokens: 0,
            cached_tokens: 0,
            fit: Fit::Fits,
            in_flight: view.replica(slot).in_flight(),
            running: 0.0,
            queued: 0.0,
            trust: 0.0,
        });
        shown.collect()
    }
}

impl Explanation {
    /// Names the rest that all replicas asked for as what a request waits for, whatever was thought of
    /// other regions beside that.
    fn rest(&mut self, planned: Result<Attempt, Refusal>, so_far: &SoFar) {
        let until = so_far.busy_until.filter(|_| planned == Err(Refusal::AllResting));
        let Some(until) = until else { return };
        let rest = until.saturating_duration_since(Instant::now());
        self.rests_ms = Some(u64::try_from(rest.as_millis()).unwrap_or(u64::MAX));
        if self.decision != Decision::Region {
            self.reason = Refusal::AllResting.name();
        }
        for candidate in &mut self.candidates {
            candidate.why = Some(RESTING);
        }
    }

    /// Notes what is done, and why.
    fn judge(&mut self, way: &Way, plan: Option<&SpillPlan>, planned: Result<Attempt, Refusal>) {
        let spill_reason = plan.map(|plan| plan.reason.name());
        let decision = match (way, planned) {
            (Way::Own, Ok(attempt)) => {
                self.predicted = attempt.prediction;
                (Decision::Replica, Some(attempt.reason.name()))
            }
            (Way::Own, Err(refusal)) => (Decision::Refuse, Some(refusal.name())),
            (Way::Region(destination, reason), _) => {
                self.chosen = Some(destination.region.to_string());
                (Decision::Region, Some(reason.name()))
            }
            (Way::Wait { .. }, _) => (Decision::Wait, spill_reason),
            (Way::Shed(..), _) => (Decision::Shed, spill_reason),
            (Way::Late(reason, _), _) => {
                self.predicted = planned.ok().and_then(|attempt| attempt.prediction);
                (Decision::Shed, Some(reason.name()))
            }
        };
        self.decision = decision.0;
        self.reason = decision.1.unwrap_or(self.reason);
    }

    /// Brings the replica that was chosen to the front, and leaves out what is too much.
    fn mark_chosen(&mut self) {
        for region in &mut self.regions {
            region.chosen = self.chosen.as_ref() == Some(&region.name);
        }
        let chosen = self.chosen.as_ref().filter(|_| self.decision == Decision::Replica);
        for candidate in &mut self.candidates {
            candidate.chosen = chosen == Some(&candidate.name);
            // Of those that could serve, all but one are not needed.
            let why = candidate.why.unwrap_or_else(|| Obstacle::NotChosen.name());
            candidate.why = (!candidate.chosen).then_some(why);
        }
        if let Some(place) = self.candidates.iter().position(|candidate| candidate.chosen) {
            self.candidates[..=place].rotate_right(1);
        }
        self.candidates_left_out = self.candidates.len().saturating_sub(CANDIDATES_MAX);
        self.candidates.truncate(CANDIDATES_MAX);
    }
}

fn replica(name: &str, region: &str, weighed: &Weighed) -> ExplainedReplica {
    ExplainedReplica {
        name: name.to_owned(),
        region: region.to_owned(),
        chosen: false,
        why: weighed.obstacle.map(Obstacle::name),
        cost_ms: weighed.total_ms,
        terms: weighed.cost,
        prompt_tokens: weighed.prompt_tokens,
        cached_tokens: weighed.cached_tokens,
        fit: weighed.fit,
        in_flight: weighed.in_flight,
        running: weighed.running,
        queued: weighed.queued,
        trust: weighed.trust,
    }
}

fn region(name: &str, judged: &Judged) -> ExplainedRegion {
    ExplainedRegion {
        name: name.to_owned(),
        chosen: false,
        why: judged.objection.map(Objection::name),
        cost_ms: judged.cost.total_ms(),
        terms: judged.cost,
    }
}
