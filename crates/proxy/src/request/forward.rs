//! A request's way to other regions: whether to go, and what comes of it.

use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

use http::{Request, Uri};
use http_body_util::BodyExt;
use spillway_protocol::{ErrorKind, GatewayError};
use spillway_route::{Refusal, SpillPlan, SpillReason, SpillVerdict};
use spillway_types::{Inquiry, ModelName, ReplicaSlot};
use tokio::time::timeout;

use crate::place::{Place, RegionPlace};
use crate::regions::Regions;
use crate::remote::{Destination, Forwarded, GuestTerms, RemoteFailure, RemoteReply};
use crate::request::dispatch::{Choice, Dispatch, Dispatched, refused};
use crate::request::record::Record;
use crate::request::so_far::SoFar;
use crate::upstream::{LentBody, Reply};
use crate::waiting::WaitKey;
use crate::wire_body::{BoxError, LinkBody, WireBody};

/// How often a request that waits looks whether another region would be sooner by now.
const REVIEW: Duration = Duration::from_millis(250);

/// Which way a request goes on.
#[derive(Debug)]
pub(super) enum Way {
    /// By the replicas of the own region, or not at all.
    Own,
    /// To another region.
    Region(Destination, SpillReason),
    /// Nowhere for now: until one of the own replicas has a place.
    Wait(WaitKey),
    /// Nowhere: the client is told this, and to come again after this time.
    Shed(ErrorKind, Duration),
}

impl Dispatch<'_> {
    pub(super) fn way(&self, plan: &SpillPlan, queues_there: bool, key: WaitKey) -> Way {
        match &plan.verdict {
            SpillVerdict::Own => Way::Own,
            SpillVerdict::Forward(ways) => match ways.first() {
                Some(&index) => {
                    let region = self.regions.others[index].name.clone();
                    Way::Region(Destination { region, node: None }, plan.reason)
                }
                None => Way::Own,
            },
            SpillVerdict::Wait { .. } | SpillVerdict::Shed { .. } if queues_there => Way::Own,
            SpillVerdict::Wait { .. } => Way::Wait(key),
            SpillVerdict::Shed { retry_after_s } => {
                let kind = match plan.reason {
                    SpillReason::Late => ErrorKind::DeadlineExceeded,
                    _ => ErrorKind::Overloaded,
                };
                Way::Shed(kind, Duration::from_secs((*retry_after_s).into()))
            }
        }
    }

    /// Goes by what is known now: it may have changed while the request waited.
    fn look_again(&mut self, so_far: &mut SoFar) {
        let gateway = &self.worker.gateway;
        self.regions = gateway.regions();
        let view = gateway.view();
        if Arc::ptr_eq(&view, &self.view) {
            return;
        }
        // Gone with the config: then it is served by what there was.
        let Some(route) = view.route_again(&self.prepared.route) else { return };
        let name = |slot: &ReplicaSlot| self.view.replica(*slot).spec().name.clone();
        let tried: Vec<_> = so_far.tried.iter().map(name).collect();
        so_far.tried = tried.iter().filter_map(|name| view.slot(name)).collect();
        self.prepared.route = route;
        self.view = view;
    }

    /// Waits for a place at one of the own replicas, or for news of other regions.
    ///
    /// # Errors
    /// If the queue is full, or it has waited for too long.
    pub(super) async fn wait(
        &mut self,
        key: WaitKey,
        so_far: &mut SoFar,
    ) -> Result<(), GatewayError> {
        let waitings = &self.worker.gateway.waiting;
        let now = Instant::now();
        let since = *so_far.waiting_since.get_or_insert(now);
        let deadline = self.prepared.inquiry.deadline.at();
        let until = deadline.min(since + waitings.longest());
        if now >= until {
            let refusal = if now >= deadline { Refusal::DeadlinePassed } else { Refusal::AllBusy };
            return Err(refused(refusal, so_far));
        }
        let priority = self.prepared.inquiry.priority;
        let mut stay = match so_far.stay.take() {
            Some(stay) => stay,
            None => waitings
                .enter(key, until, (self.prepared.body.held_bytes(), priority))
                .map_err(|_| refused(Refusal::AllBusy, so_far))?,
        };
        so_far.has_turn = timeout(REVIEW.min(until - now), stay.turn()).await.is_ok();
        if !so_far.has_turn {
            so_far.stay = Some(stay);
        }
        // Who refused it a while ago may have room by now; whether it has, its reports say.
        let now = Instant::now();
        so_far.refused.retain(|(_, at)| now.saturating_duration_since(*at) < REVIEW);
        self.look_again(so_far);
        Ok(())
    }

    /// Asks another region; `None` if somebody else is to be asked.
    pub(super) async fn ask_region(
        &mut self,
        (destination, reason): (Destination, Option<SpillReason>),
        record: &mut Record,
        so_far: &mut SoFar,
    ) -> Result<Option<Dispatched>, GatewayError> {
        // Or it would be given a turn while it is served elsewhere.
        so_far.stay = None;
        so_far.has_turn = false;
        let region = destination.region.clone();
        let model = self.prepared.inquiry.model.as_ref();
        let Some(count) = self.regions.count(&region, model) else {
            so_far.refused.push((region, Instant::now()));
            return Ok(None);
        };
        let failure = match self.forward(&destination).await {
            Ok(RemoteReply { node, response }) => {
                record.forwarded(&region);
                let reply = Reply { response: response.map(WireBody::Link), connection: None };
                let place = Place::Region(RegionPlace { region, node, _count: count });
                let choice = Choice::Region(reason);
                return Ok(Some(Dispatched { reply, place, witness: None, choice }));
            }
            Err(failure) => failure,
        };
        tracing::debug!(%region, error = %failure, "forwarding failed");
        if let Some(fault) = self.prepared.body.fault() {
            return Err(fault.clone());
        }
        count.failed(&failure);
        so_far.refused.push((region.clone(), Instant::now()));
        // To go on after a refusal is no retry: nobody has worked on the request.
        if matches!(failure, RemoteFailure::NotConnected | RemoteFailure::Refused { .. }) {
            if let RemoteFailure::Refused { wait: Some(wait) } = failure {
                let until = Instant::now() + wait;
                so_far.busy_until = Some(so_far.busy_until.map_or(until, |known| known.min(until)));
            }
            return Ok(None);
        }
        so_far.attempts += 1;
        let safety = self.safety(failure.retry_safety(), true);
        let told = failure.to_gateway_error(&region);
        let attempts_max = self.worker.gateway.config.retry.attempts_max;
        if so_far.attempts >= attempts_max || !self.may_retry(safety) {
            return Err(told);
        }
        so_far.failure = Some(told);
        record.retried(safety);
        Ok(None)
    }

    async fn forward(&mut self, destination: &Destination) -> Result<RemoteReply, RemoteFailure> {
        let Some(remote) = self.worker.gateway.remote() else {
            return Err(RemoteFailure::NotConnected);
        };
        let body = self.prepared.body.for_attempt();
        let body = body.ok_or_else(|| RemoteFailure::Broken("the body was sent already".into()))?;
        let (body, lender) = LentBody::new(body);
        let request = Forwarded {
            request: self.as_client_sent(body.map_err(BoxError::from).boxed_unsync()),
            terms: self.guest_terms(),
            has_room: has_room(&self.regions, destination, self.prepared.inquiry.model.as_ref()),
        };
        let deadline = self.prepared.inquiry.deadline.remaining(Instant::now());
        let bound = self.prepared.route.spec.timeouts.first_byte.min(deadline);
        let reply = timeout(bound, remote.forward(destination, request)).await;
        let returned = lender.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(body) = returned {
            self.prepared.body.give_back(body);
        }
        match reply {
            Ok(reply) => reply,
            Err(_) if bound == deadline => Err(RemoteFailure::DeadlinePassed),
            Err(_) => Err(RemoteFailure::Broken("it did not begin its reply in time".into())),
        }
    }

    /// The request with the path that the client sent, since the other node routes it by that.
    fn as_client_sent(&self, body: LinkBody) -> Request<LinkBody> {
        let mut request = Request::new(body);
        *request.method_mut() = self.head.method.clone();
        let path = self.head.uri.path_and_query().cloned();
        *request.uri_mut() = path.map(Uri::from).unwrap_or_default();
        *request.headers_mut() = self.head.headers.clone();
        request
    }

    fn guest_terms(&self) -> GuestTerms {
        let Inquiry { model, prefix, client, deadline, hop, tenant, priority, .. } =
            &self.prepared.inquiry;
        GuestTerms {
            model: model.clone(),
            version: self.prepared.target.version().cloned(),
            time_left: deadline.remaining(Instant::now()),
            hop: hop.saturating_add(1),
            client: *client,
            prefix: prefix.as_slice().to_vec(),
            tenant: tenant.clone(),
            priority: *priority,
        }
    }
}

fn has_room(regions: &Regions, to: &Destination, model: Option<&ModelName>) -> bool {
    model.is_some_and(|model| regions.has_room(&to.region, model))
}
