//! Explanation of how a request would be routed, without sending it.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use http::{HeaderMap, Method, Request};
use http_body_util::{BodyExt, Full};
use serde::Serialize;
use spillway_journey::{Decision as Judgement, Journey, OverflowSight, ReplicaSight, RequestWay};
use spillway_protocol::{Echo, Endpoint, ErrorKind, GatewayError};
use spillway_request::grpc;
use spillway_request::prepare::prepare;
use spillway_request::surroundings::Surroundings;
use spillway_route::{
    Attempt, Cost, Fit, Judged, Moment, Objection, Obstacle, PlanError, Reason, SpillCost, Weighed,
    plan_explained,
};
use spillway_transport::{BoxError, WireBody};
use spillway_types::{BlockHashes, Prediction, TenantName};
use spillway_view::Regions;

use crate::request::dispatch::{Dispatch, Interim};
use crate::request::response_cookies::begin_session;
use crate::request::tenant::tenant_key;
use crate::worker::Worker;

/// Most replicas that an explanation shows, the cheapest first; the others are counted. Enough for
/// a person, and cheap enough for a busy node.
const CANDIDATES_MAX: usize = 64;

/// A request to be explained.
#[derive(Clone, Debug)]
pub struct ExplainRequest {
    /// Method of the request.
    pub method: Method,
    /// Path and query as the client would send them.
    pub path: String,
    /// Headers; credentials among them are not read.
    pub headers: HeaderMap,
    /// Whole body.
    pub body: Bytes,
    /// Tenant of the request; `None` for no tenant.
    pub tenant: Option<TenantName>,
    /// Address of the client; `None` for a client whose country is unknown.
    pub client: Option<IpAddr>,
    /// True if the caller may learn how much of an isolated tenant's prompts is cached. A cached
    /// prompt shows that the tenant has sent it.
    pub sees_isolated: bool,
}

/// Target to which a request would go now, and the judgement of every other target.
#[derive(Clone, Debug, Serialize)]
pub struct Explanation {
    /// Route of the request.
    pub route: String,
    /// Country of the client, if a location database knows it.
    pub client_country: Option<String>,
    /// Regions that may serve the request, by its route, its tenant and its client's country.
    pub may_be_served: String,
    /// Model that would serve the request, aliases resolved.
    pub model: Option<String>,
    /// Policy of the route.
    pub policy: &'static str,
    /// Region of this node.
    pub region: String,
    /// Size of the prompt as it is hashed, bytes.
    pub prompt_bytes: u32,
    /// Full blocks of the prompt.
    pub blocks: usize,
    /// Leading blocks at the replica that has most of them.
    pub cached_blocks: u32,
    /// Decision on the request.
    pub decision: Decision,
    /// Replica or region to which the request would go.
    pub chosen: Option<String>,
    /// Reason for the decision, e.g. `soonest`, `better`, `all_busy`, `all_resting`.
    pub reason: &'static str,
    /// Milliseconds until a replica takes requests again, if all of them asked for a pause.
    pub rests_ms: Option<u64>,
    /// Overflow replica that would be asked in place of a refusal, or after some time of a wait.
    pub overflow: Option<String>,
    /// Predicted times at the chosen replica.
    pub predicted: Option<Prediction>,
    /// Replicas of this region, the chosen one first and then by cost.
    pub candidates: Vec<ExplainedReplica>,
    /// Replicas that are not shown.
    pub candidates_left_out: usize,
    /// Cost of waiting here, if regions were compared.
    pub own: Option<SpillCost>,
    /// Other regions, if they were compared.
    pub regions: Vec<ExplainedRegion>,
}

/// Decision on a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Decision {
    /// Send the request to a replica of this region.
    Replica,
    /// Forward the request to another region.
    Region,
    /// Let the request wait in this node for a slot.
    Wait,
    /// Turn the request away for now.
    Shed,
    /// Answer that no replica or region can serve the request.
    Refuse,
}

/// Judgement of a replica.
#[derive(Clone, Debug, Serialize)]
pub struct ExplainedReplica {
    /// Name of the replica.
    pub name: String,
    /// Region of the replica.
    pub region: String,
    /// True if the request would go there.
    pub chosen: bool,
    /// Reason for which it would not, e.g. `busy`, `not_chosen`.
    pub why: Option<&'static str>,
    /// Sum of all terms, milliseconds.
    pub cost_ms: f32,
    /// Terms of the cost, milliseconds.
    pub terms: Cost,
    /// Tokens of the prompt, by the usual ratio of bytes to tokens at the replica.
    pub prompt_tokens: u32,
    /// Tokens of these that are expected in its cache.
    pub cached_tokens: u32,
    /// Fit of the request into the replica's KV cache.
    pub fit: Fit,
    /// Requests of this node at the replica.
    pub in_flight: u32,
    /// Requests that run there, as far as known.
    pub running: f32,
    /// Requests that wait there, as far as known.
    pub queued: f32,
    /// Trust in what was learned of the replica's speed, 0 to 1.
    pub trust: f32,
}

/// Judgement of another region.
#[derive(Clone, Debug, Serialize)]
pub struct ExplainedRegion {
    /// Name of the region.
    pub name: String,
    /// True if the request would go there.
    pub chosen: bool,
    /// Reason for which it would not, e.g. `unreachable`, `not_better`.
    pub why: Option<&'static str>,
    /// Sum of all terms, milliseconds.
    pub cost_ms: f32,
    /// Terms of the cost, milliseconds.
    pub terms: SpillCost,
}

/// Returns the decision on a request as if it came now. Nothing is sent, no turn is taken, and
/// nothing is learned. Stand-ins for a model that cannot serve are not looked at.
///
/// # Errors
/// Returns the error with which the request itself would fail before it is routed.
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
        Some(tenant) => Arc::new(gateway.clients.authenticator.vouched(Some(tenant), 0)),
        None => gateway.clients.authenticator.anybody(),
    };
    let client = request.client.unwrap_or(IpAddr::V4(Ipv4Addr::UNSPECIFIED));
    let grant = grant.of_client(gateway.routing.locations().bound(client));
    let view = gateway.routing.view();
    let around = Surroundings {
        gateway,
        view: &view,
        head: &head,
        client,
        // Otherwise the body would be counted against the memory of the client in question.
        is_one_client: false,
        started: Instant::now(),
        guest: None,
        grant: &grant,
    };
    let body = Full::new(request.body).map_err(BoxError::from).boxed_unsync();
    let mut prepared = prepare(around, &mut WireBody::Link(body), endpoint).await?;
    around.check_regions(&prepared)?;
    if prepared.inquiry.is_isolated && !request.sees_isolated {
        prepared.inquiry.prefix = BlockHashes::default();
    }
    // Called for its effect on the plan: no reply carries a cookie here.
    drop(begin_session(&gateway.routing, &mut prepared, &head.headers));
    let tenant = tenant_key(&gateway.routing.key_hasher, &prepared);
    let dispatch = Dispatch {
        worker,
        view: Arc::clone(&view),
        regions: gateway.routing.regions(),
        prepared: &mut prepared,
        head: &head,
        dice: gateway.routing.dice(),
        started: around.started,
        tenant,
        interim: Interim::default(),
    };
    let mut explanation = dispatch.explain();
    let country = grant.client.and_then(|client| client.country);
    explanation.client_country = country.map(|country| country.to_string());
    Ok(explanation)
}

impl Dispatch<'_> {
    fn explain(self) -> Explanation {
        let mut journey = self.journey();
        let mut dice = self.dice.clone();
        let weighed = self.weighed(&mut journey);
        let judged = journey.consider(&self, Instant::now(), &mut dice);
        let mut explanation = self.explanation(&journey, weighed);
        if let Some(home) = &self.prepared.target.home {
            explanation.decision = Decision::Region;
            explanation.chosen = Some(home.region.to_string());
            explanation.reason = Reason::Session.name();
            return explanation;
        }
        explanation.judge(&judged, &self.regions);
        if let (Decision::Replica, Ok(attempt)) = (explanation.decision, judged.planned) {
            explanation.chosen = Some(self.view.replica(attempt.slot).spec().name.to_string());
        }
        if let Some(plan) = &judged.spill {
            explanation.own = plan.own;
            let regions = self.regions.others.iter().zip(&plan.regions);
            let regions = regions.map(|(other, judged)| region(other.name.as_str(), judged));
            explanation.regions = regions.collect();
        }
        explanation.mark_chosen();
        explanation.rest(judged.planned, journey.busy_until());
        if !matches!(explanation.decision, Decision::Replica | Decision::Region) {
            explanation.overflow = self.overflow_replica();
        }
        explanation
    }

    /// Returns the overflow replica that would be asked first, whatever its caps.
    fn overflow_replica(&self) -> Option<String> {
        let mut candidates = OverflowSight::overflow(self)?.candidates().iter();
        let found = candidates.find(|candidate| self.may_overflow_to(candidate.slot))?;
        Some(self.view.replica(found.slot).spec().name.to_string())
    }

    /// Returns the judgement of each replica, in the turn that the next request will have.
    fn weighed(&self, journey: &mut Journey) -> Vec<Weighed> {
        let Some(group) = self.group() else { return Vec::new() };
        let ticket = group.memory.next_ticket();
        journey.set_ticket(ticket);
        let loads = self.loads(journey.room(self), true);
        let mut dice = self.dice.clone();
        let moment = Moment { now: Instant::now(), loads: &loads, ticket, rng: &mut dice };
        plan_explained(&self.prepared.inquiry, &group.group, &[], moment).1
    }

    fn explanation(&self, journey: &Journey, weighed: Vec<Weighed>) -> Explanation {
        let Self { prepared, view, worker, .. } = self;
        let region = &worker.gateway.routing.own_region;
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
            client_country: None,
            may_be_served: inquiry.residency.to_string(),
            model: inquiry.model.as_ref().map(ToString::to_string),
            policy: prepared.route.spec.policy.name(),
            region: region.clone(),
            prompt_bytes: inquiry.prompt_bytes,
            blocks: inquiry.prefix.as_slice().len(),
            cached_blocks: journey.cached_longest().unwrap_or_default(),
            decision: Decision::Refuse,
            chosen: None,
            reason: PlanError::NoReplica.name(),
            rests_ms: None,
            overflow: None,
            predicted: None,
            candidates,
            candidates_left_out: 0,
            own: None,
            regions: Vec::new(),
        }
    }
}

impl Dispatch<'_> {
    /// Returns the replicas that asked for a pause, of which nothing is predicted.
    fn resting(&self) -> Vec<ExplainedReplica> {
        let Self { view, worker, .. } = self;
        let slots = self.group().map(|group| &*group.resting).unwrap_or_default();
        let shown = slots.iter().take(CANDIDATES_MAX).map(|&slot| ExplainedReplica {
            name: view.replica(slot).spec().name.to_string(),
            region: worker.gateway.routing.own_region.clone(),
            chosen: false,
            why: Some(Obstacle::Resting.name()),
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
    /// Names the pause that all replicas asked for as the reason of a wait, whatever the result for
    /// other regions.
    fn rest(&mut self, planned: Result<Attempt, PlanError>, busy_until: Option<Instant>) {
        let until = busy_until.filter(|_| planned == Err(PlanError::AllResting));
        let Some(until) = until else { return };
        let rest = until.saturating_duration_since(Instant::now());
        self.rests_ms = Some(u64::try_from(rest.as_millis()).unwrap_or(u64::MAX));
        if self.decision != Decision::Region {
            self.reason = PlanError::AllResting.name();
        }
        for candidate in &mut self.candidates {
            candidate.why = Some(Obstacle::Resting.name());
        }
    }

    /// Notes what is done, and why.
    fn judge(&mut self, judged: &Judgement, regions: &Regions) {
        let spill_reason = judged.spill.as_ref().map(|plan| plan.reason.name());
        let decision = match (judged.way, judged.planned) {
            (RequestWay::Own, Ok(attempt)) => {
                self.predicted = attempt.prediction;
                (Decision::Replica, Some(attempt.reason.name()))
            }
            (RequestWay::Own, Err(refusal)) => (Decision::Refuse, Some(refusal.name())),
            (RequestWay::Region { index, reason }, _) => {
                self.chosen = Some(regions.others[index].name.to_string());
                (Decision::Region, Some(reason.name()))
            }
            (RequestWay::Wait { .. }, _) => (Decision::Wait, spill_reason),
            (RequestWay::Shed { .. }, _) => (Decision::Shed, spill_reason),
            (RequestWay::TooLate { reason, .. }, planned) => {
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
            // A replica without an obstacle of its own could serve, but another one was chosen.
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
