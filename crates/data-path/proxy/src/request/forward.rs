//! A request that goes to another region: sent, and what came of it.

use std::sync::{Arc, PoisonError};

use http::{Request, Response, StatusCode, Uri};
use http_body_util::BodyExt;
use spillway_journey::{Event, Journey, RegionFailure, SOURCE_LOOK};
use spillway_protocol::{CODE_HEADER, ErrorKind, FailureCause, SHED_REASON};
use spillway_request::gateway::RoutingState;
use spillway_route::SpillReason;
use spillway_transport::{BoxError, LinkBody, coarse_clock};
use spillway_types::{Inquiry, ModelName, RegionName, TriedTarget};
use spillway_upstream::{LentBody, UpstreamBody};
use spillway_view::{
    AffinityMove, Destination, Forwarded, GuestTerms, HeldSlot, HomeNews, Learning, RefusedFor,
    RegionCount, RegionCounts, RegionSlot, Regions, RemoteError, RemoteReply,
    SharedRegionCircuitBreaker,
};
use tokio::time::{sleep, timeout};

use crate::request::dispatch::{Dispatch, Dispatched, ServedChoice};
use crate::request::record::RequestRecord;

/// Looks in a row that find a region out of reach before the requests that wait for it are given up.
const LOST_LOOKS: u32 = 2;

impl Dispatch<'_> {
    /// Asks another region. Returns the reply that ends the journey.
    pub(super) async fn ask_region(
        &mut self,
        region: RegionName,
        reason: Option<SpillReason>,
        journey: &mut Journey,
        record: &mut RequestRecord,
    ) -> Option<Dispatched> {
        self.interim.queued_request = None;
        let is_own = self.is_own(&region);
        let Some((count, breaker)) = self.pass(&region) else {
            let code = FailureCause::RegionCircuitOpen.code();
            record.failed_try(TriedTarget::Region(region), code, None);
            let event = self.region_failed(RegionFailure::Closed);
            self.tell(journey, event);
            return None;
        };
        let failure = match self.forward(&self.destination(&region)).await {
            Ok(RemoteReply { node, response }) => {
                record.forwarded(&region);
                if response.status().is_success() && !is_own {
                    self.note_conversation(&region);
                }
                // Slots taken elsewhere shorten this node's queue, too: less urgent requests may
                // depend on them alone.
                self.began(journey);
                if is_fault(&response) {
                    breaker.faulted();
                } else {
                    breaker.answered();
                }
                let target = HeldSlot::Region(RegionSlot { region, node, _count: count });
                let choice = ServedChoice::Region(reason);
                self.tell(journey, Event::RegionReplied);
                let reply = response.map(UpstreamBody::Link);
                let asked_usage = self.prepared.usage_wish_elsewhere();
                let (observer, reader) = (None, None);
                return Some(Dispatched { reply, target, observer, choice, asked_usage, reader });
            }
            Err(failure) => failure,
        };
        tracing::debug!(%region, error = %failure, "forwarding failed");
        if let Some(fault) = self.prepared.body.fault() {
            self.interim.failure = Some(fault.clone());
            self.tell(journey, Event::ClientFault);
            return None;
        }
        // Only now: a client's bad upload is no fault of the region.
        count.failed(&failure);
        breaker.failed(&failure);
        let event = self.region_failed(kind(&failure));
        record.failed_try(TriedTarget::Region(region.clone()), code(&failure), None);
        if matches!(kind(&failure), RegionFailure::Broken { .. } | RegionFailure::Lost) {
            self.interim.failure = Some(failure.to_gateway_error(&region));
            record.lost_in(&region);
        }
        self.tell(journey, event);
        None
    }

    fn is_own(&self, region: &RegionName) -> bool {
        region.as_str() == self.worker.gateway.routing.own_region
    }

    /// Returns the count of a request to a region and the breaker that let it pass; `None` if it may not
    /// go there. For the node of the own region that has a stored response they are its own.
    fn pass(&self, region: &RegionName) -> Option<(RegionCount, Arc<SharedRegionCircuitBreaker>)> {
        if self.is_own(region) {
            return Some((RegionCounts::alone(), Arc::default()));
        }
        let breaker = self.regions.breaker(region).filter(|breaker| breaker.pass())?;
        let count = self.regions.count(region, self.prepared.inquiry.model.as_ref())?;
        Some((count, Arc::clone(breaker)))
    }

    fn region_failed(&self, failure: RegionFailure) -> Event {
        Event::RegionFailed { failure, can_repeat: !self.prepared.body.is_gone() }
    }

    /// Returns the region, and the one node of it that can answer, if the request is for that node.
    fn destination(&self, region: &RegionName) -> Destination {
        let home = self.prepared.target.home.as_ref().filter(|home| home.region == *region);
        home.cloned().unwrap_or_else(|| Destination { region: region.clone(), node: None })
    }

    /// Notes that a region served a turn of the conversation.
    fn note_conversation(&self, region: &RegionName) {
        let chain = self.prepared.inquiry.prefix.as_slice();
        let gateway = &self.worker.gateway;
        if gateway.homes.conversations.find(chain).is_some_and(|it| it.region != *region) {
            gateway.counters.affinity_moves.count(AffinityMove::ConversationToRegion);
        }
        gateway.homes.conversations.served(chain, region);
        if let Some(block) = chain.last().copied() {
            let region = Some(region.clone());
            gateway.homes.outbox.push(|| HomeNews::Conversation { block, region });
        }
        if !chain.is_empty() && self.prepared.route.spec.policy.reads_caches() {
            let chain = self.prepared.inquiry.prefix.clone();
            self.worker.teach(Learning::Forwarded { region: region.clone(), chain });
        }
    }

    async fn forward(&mut self, destination: &Destination) -> Result<RemoteReply, RemoteError> {
        let Some(remote) = self.worker.gateway.routing.remote() else {
            return Err(RemoteError::NotConnected);
        };
        let body = self.prepared.body.for_attempt();
        let body = body.ok_or_else(|| RemoteError::Broken("the body was sent already".into()))?;
        let (body, lender) = LentBody::new(body);
        let request = Forwarded {
            request: self.as_client_sent(body.map_err(BoxError::from).boxed_unsync()),
            terms: self.guest_terms(),
            has_room: has_room(&self.regions, destination, self.prepared.inquiry.model.as_ref()),
        };
        let deadline = self.prepared.inquiry.deadline.remaining(coarse_clock::now());
        let bound = self.prepared.route.spec.timeouts.first_byte.min(deadline);
        let forwarding = timeout(bound, remote.forward(destination, request));
        let reply = tokio::select! {
            reply = forwarding => reply,
            () = lost(&self.worker.gateway.routing, destination) => Ok(Err(RemoteError::Lost)),
        };
        // A body that the other node never asked for can still serve another attempt.
        let returned = lender.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(body) = returned {
            self.prepared.body.give_back(body);
        }
        match reply {
            Ok(reply) => reply.and_then(refuse_switch),
            Err(_) if bound == deadline => Err(RemoteError::DeadlinePassed),
            Err(_) => Err(RemoteError::Broken("it did not begin its reply in time".into())),
        }
    }

    /// Returns the request with the path that the client sent, since the other node routes by that
    /// path.
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
            time_left: deadline.remaining(coarse_clock::now()),
            hop: hop.saturating_add(1),
            client: *client,
            prefix: prefix.as_slice().to_vec(),
            tenant: tenant.clone(),
            priority: *priority,
            residency: residency.clone(),
            usage: self.prepared.usage,
            deaths: self.prepared.deaths,
            named: self.prepared.stored_for.clone().filter(|named| Some(named) != model.as_ref()),
        }
    }
}

/// Waits until the region is out of reach for longer than a short cut of the network takes; of the own
/// region, the node.
async fn lost(routing: &RoutingState, to: &Destination) {
    let is_reachable = || {
        let own = to.node.as_ref().filter(|_| to.region.as_str() == routing.own_region);
        match own {
            Some(node) => routing.remote().is_some_and(|remote| remote.is_alive(node)),
            None => routing.regions().is_reachable(&to.region),
        }
    };
    let mut looks_lost = 0;
    while looks_lost < LOST_LOOKS {
        sleep(SOURCE_LOOK).await;
        looks_lost = if is_reachable() { 0 } else { looks_lost + 1 };
    }
}

/// Returns the kind of a failure for the journey.
fn kind(failure: &RemoteError) -> RegionFailure {
    match failure {
        RemoteError::NotConnected => RegionFailure::NotConnected,
        RemoteError::Leaving => RegionFailure::Leaving,
        RemoteError::Refused { why: RefusedFor::Residency, .. } => RegionFailure::OutsideResidency,
        RemoteError::Refused { why: RefusedFor::Load, wait, .. } => {
            RegionFailure::Refused { wait: *wait }
        }
        RemoteError::Refused { why: RefusedFor::Other, .. } => {
            RegionFailure::Refused { wait: None }
        }
        RemoteError::Lost => RegionFailure::Lost,
        RemoteError::Unsent(_) | RemoteError::Broken(_) | RemoteError::DeadlinePassed => {
            RegionFailure::Broken { safety: failure.retry_safety() }
        }
    }
}

/// Returns the code of a failure in records.
fn code(failure: &RemoteError) -> &'static str {
    match failure {
        RemoteError::NotConnected | RemoteError::Unsent(_) => {
            FailureCause::RegionUnreachable.code()
        }
        RemoteError::Leaving => FailureCause::RegionLeaving.code(),
        RemoteError::Refused { why: RefusedFor::Residency, .. } => {
            ErrorKind::RegionNotAllowed.code()
        }
        RemoteError::Refused { why: RefusedFor::Load, .. } => FailureCause::RegionFull.code(),
        RemoteError::Refused { why: RefusedFor::Other, .. } => FailureCause::RegionFailed.code(),
        RemoteError::Lost => FailureCause::RegionLost.code(),
        RemoteError::Broken(_) => FailureCause::RegionBroken.code(),
        RemoteError::DeadlinePassed => ErrorKind::DeadlineExceeded.code(),
    }
}

/// Refuses an unasked switch of protocols, after which no HTTP follows.
fn refuse_switch(reply: RemoteReply) -> Result<RemoteReply, RemoteError> {
    if reply.response.status().is_informational() {
        return Err(RemoteError::Broken("it switched protocols unasked".into()));
    }
    Ok(reply)
}

/// Returns true if a reply says that the region could not serve the request: an error of its
/// gateway that is neither the client's fault nor load. Only gateways may send the header of its
/// codes.
fn is_fault(response: &Response<LinkBody>) -> bool {
    let status = response.status();
    let is_load =
        [StatusCode::SERVICE_UNAVAILABLE, StatusCode::TOO_MANY_REQUESTS].contains(&status);
    // A request with too little time gets 504.
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
