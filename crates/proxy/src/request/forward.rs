//! A request's way to other regions: whether to go, and what comes of it.

use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};
use std::time::Instant;

use http::{Request, Response, StatusCode, Uri};
use http_body_util::BodyExt;
use spillway_protocol::{CODE_HEADER, GatewayError, SHED_REASON};
use spillway_route::{ShedReason, SpillPlan, SpillReason, SpillVerdict};
use spillway_types::{Inquiry, ModelName};
use tokio::time::timeout;

use crate::moves::{Kept, MovedTo};
use crate::place::{Place, RegionPlace};
use crate::regions::Regions;
use crate::remote::{Destination, Forwarded, GuestTerms, RefusedFor, RemoteFailure, RemoteReply};
use crate::request::dispatch::{Choice, Dispatch, Dispatched};
use crate::request::record::Record;
use crate::request::so_far::SoFar;
use crate::upstream::{LentBody, Reply};
use crate::wire_body::{BoxError, LinkBody, WireBody};

/// Nodes of other regions that say they are about to end, before that region counts as one that does
/// not take the request: during a rolling restart it is one node of a region at a time.
const LEAVING_MAX: u32 = 3;

/// Which way a request goes on.
#[derive(Debug)]
pub(super) enum Way {
    /// By the replicas of the own region, or not at all.
    Own,
    /// To another region.
    Region(Destination, SpillReason),
    /// Nowhere for now: until one of the own replicas has a place. Reading its prompt takes this
    /// many milliseconds then.
    Wait {
        /// 0 if unknown.
        prefill_ms: f32,
    },
    /// Nowhere: the client is told this. Its turn would have come after so many milliseconds.
    Shed(ShedReason, f32),
    /// To no replica, though one is free: its first token is predicted after so many milliseconds,
    /// which is too late, and nobody is sooner.
    Late(ShedReason, f32),
}

impl Dispatch<'_> {
    /// What a plan between regions means. With `queues_there` a replica that has no limit takes the
    /// request whatever waits there.
    pub(super) fn way(&self, plan: &SpillPlan, queues_there: bool, prefill_ms: f32) -> Way {
        match &plan.verdict {
            SpillVerdict::Own => Way::Own,
            SpillVerdict::Forward(ways) => match ways.first() {
                Some(&index) => {
                    let region = self.regions.others[index].name.clone();
                    Way::Region(Destination { region, node: None }, plan.reason)
                }
                None => Way::Own,
            },
            // What comes too late is of no use to anybody, wherever it would wait.
            SpillVerdict::Shed { wait_ms, .. } if plan.reason == SpillReason::Slo => {
                Way::Shed(ShedReason::Slo, *wait_ms)
            }
            SpillVerdict::Wait { .. } | SpillVerdict::Shed { .. } if queues_there => Way::Own,
            SpillVerdict::Wait { wait_ms } if self.is_beyond_degraded(*wait_ms) => {
                Way::Shed(ShedReason::Degraded, *wait_ms)
            }
            SpillVerdict::Wait { .. } => Way::Wait { prefill_ms },
            SpillVerdict::Shed { wait_ms, .. } => {
                Way::Shed(plan.reason.shed().unwrap_or(ShedReason::QueueFull), *wait_ms)
            }
        }
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
        let gate = self.regions.gate(&region).filter(|gate| gate.pass()).map(Arc::clone);
        let (Some(count), Some(gate)) = (self.regions.count(&region, model), gate) else {
            so_far.refused.push((region, Instant::now()));
            return Ok(None);
        };
        let failure = match self.forward(&destination).await {
            Ok(RemoteReply { node, response }) => {
                record.forwarded(&region);
                if response.status().is_success() {
                    let chain = self.prepared.inquiry.prefix.as_slice();
                    let gateway = &self.worker.gateway;
                    if gateway.conversations.find(chain).is_some_and(|it| it.region != region) {
                        gateway.counters.moves.count(Kept::Conversation, MovedTo::Region);
                    }
                    gateway.conversations.served(chain, &region);
                }
                // The line here goes as fast as others take from it, too: what is left for the less urgent
                // may all be there.
                self.began(so_far);
                if is_fault(&response) {
                    gate.faulted();
                } else {
                    gate.answered();
                }
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
        gate.failed(&failure);
        if matches!(failure, RemoteFailure::Leaving) && so_far.leaving < LEAVING_MAX {
            // Another node of the region is asked next, if there is one.
            so_far.leaving += 1;
            return Ok(None);
        }
        so_far.refused.push((region.clone(), Instant::now()));
        if matches!(failure, RemoteFailure::Refused { why: RefusedFor::Residency, .. }) {
            so_far.barred_by.push(region.clone());
        }
        // To go on after a refusal is no retry: nobody has worked on the request.
        if matches!(
            failure,
            RemoteFailure::NotConnected | RemoteFailure::Refused { .. } | RemoteFailure::Leaving
        ) {
            if let RemoteFailure::Refused { wait: Some(wait), .. } = failure {
                let until = Instant::now() + wait;
                let known = so_far.elsewhere_until;
                so_far.elsewhere_until = Some(known.map_or(until, |known| known.min(until)));
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
        // Whoever chose the region has looked already; what is forbidden must not depend on that.
        let residency = &self.prepared.inquiry.residency;
        if !self.worker.gateway.regions().allows(&destination.region, residency) {
            self.worker.gateway.counters.residency_sent.fetch_add(1, Ordering::Relaxed);
            return Err(RemoteFailure::Refused { wait: None, why: RefusedFor::Residency });
        }
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
            Ok(reply) => reply.and_then(refuse_switch),
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
        let Inquiry { model, prefix, client, deadline, hop, tenant, priority, residency, .. } =
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
            residency: residency.clone(),
        }
    }
}

/// Refuses a reply that switches protocols, which nobody asked for: what follows it is no HTTP.
fn refuse_switch(reply: RemoteReply) -> Result<RemoteReply, RemoteFailure> {
    if reply.response.status().is_informational() {
        return Err(RemoteFailure::Broken("it switched protocols unasked".into()));
    }
    Ok(reply)
}

/// Whether a reply says that the region could not serve the request: an error of its gateway, which
/// alone may send the header of its codes, that is neither the client's fault nor load.
fn is_fault(response: &Response<LinkBody>) -> bool {
    let status = response.status();
    let is_load =
        [StatusCode::SERVICE_UNAVAILABLE, StatusCode::TOO_MANY_REQUESTS].contains(&status);
    // Who had too little time is told so with 504.
    let is_shed = response.headers().contains_key(&SHED_REASON);
    status.is_server_error()
        && !is_load
        && !is_shed
        && response.headers().contains_key(&CODE_HEADER)
}

fn has_room(regions: &Regions, to: &Destination, model: Option<&ModelName>) -> bool {
    model.is_some_and(|model| regions.has_room(&to.region, model))
}

#[cfg(test)]
mod tests {
    use http_body_util::Empty;

    use super::*;

    #[test]
    fn a_node_whose_reply_is_informational_has_broken_the_link() {
        for (status, is_taken) in
            [(100, false), (101, false), (103, false), (200, true), (404, true)]
        {
            let body = Empty::new().map_err(|never| match never {}).boxed_unsync();
            let response = Response::builder().status(status).body(body).expect("a reply");
            let checked = refuse_switch(RemoteReply { node: "n1".into(), response });
            assert_eq!(checked.is_ok(), is_taken, "{status}");
        }
    }
}
