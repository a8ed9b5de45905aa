//! Input from other nodes: datagrams for the driver, requests for the data path.

use std::future::ready;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::{HeaderName, HeaderValue, Request, Response, StatusCode, Uri, Version};
use http_body_util::{BodyExt, Empty};
use spillway_gossip::Content;
use spillway_knowledge::KnowledgeHandle;
use spillway_link::{
    BoxBody, Deciding, ForwardBody, ForwardHead, Handler, Identity, Refused, RefusedReason, Serving,
};
use spillway_proxy::{GuestAnswer, GuestError, Worker, admits_guest, serve_guest};
use spillway_request::gateway::Switches;
use spillway_route::HOPS_MAX;
use spillway_transport::{BoxError, LinkBody};
use spillway_types::{RegionName, Residency, TenantName};
use spillway_view::{GuestTerms, PendingGuest};
use tokio::sync::mpsc;

use crate::cluster::guest_notes::GuestNotes;
use crate::cluster::homes::{self, KnownHomes};
use crate::cluster::residency;
use crate::cluster::residency_refusals::ResidencyRefusals;

/// Header of a reply to a request that was accepted and then not worked on. Its value is the
/// milliseconds after which there might be room. Only between nodes.
pub(super) static NOT_SERVED: HeaderName = HeaderName::from_static("x-spillway-not-served");

/// Header beside [`NOT_SERVED`]: room was not what was missing. Only between nodes.
pub(super) static NOT_ABLE: HeaderName = HeaderName::from_static("x-spillway-not-able");

/// Time limit of a request whose sender names no deadline; its route's own time-out ends it sooner.
const NO_DEADLINE: Duration = Duration::from_secs(24 * 3600);

/// Answers of this node to questions about itself.
pub(crate) trait AnswerPeers: std::fmt::Debug + Send + Sync {
    /// Answers another node's question at this address; `None` if nothing is asked for there.
    fn answer(&self, uri: &Uri) -> Option<Serving>;
}

/// Service for other nodes: their requests, and their questions about this node.
#[derive(Debug)]
pub(crate) struct PeerService {
    pub(crate) worker: Arc<Worker>,
    pub(crate) answers: Arc<dyn AnswerPeers>,
}

/// Receiver of datagrams and requests from other nodes.
#[derive(Debug)]
pub(super) struct Guests {
    pub(super) switches: Arc<Switches>,
    pub(super) service: PeerService,
    pub(super) datagrams: mpsc::Sender<(Identity, Bytes)>,
    /// The own region: prompts are taken only from its nodes.
    pub(super) region: RegionName,
    pub(super) knowledge: Arc<KnowledgeHandle>,
    pub(super) residency_refusals: ResidencyRefusals,
    /// Homes that nodes send each other.
    pub(super) homes: KnownHomes,
}

impl Handler for Guests {
    fn datagram(&self, from: &Identity, datagram: Bytes) {
        if Content::of(&datagram) == Some(Content::Prompts) {
            if *from.region() == self.region {
                self.knowledge.receive(from.node(), datagram);
            }
            return;
        }
        // A datagram that finds no room is lost, as any datagram may be.
        drop(self.datagrams.try_send((from.clone(), datagram)));
    }

    fn forwarded(&self, from: &Identity, mut head: ForwardHead, body: ForwardBody) -> Deciding {
        if let Some(answering) = self.node_question(&head) {
            return Box::pin(ready(Ok(answering)));
        }
        if head.client.is_none()
            && let path @ (homes::NEWS_PATH | homes::ALL_PATH | homes::RESPONSE_PATH) =
                head.uri.path()
        {
            let (homes, path) = (self.homes.clone(), path.to_owned());
            let answering: Serving = Box::pin(async move { Ok(homes.answer(&path, body).await) });
            return Box::pin(ready(Ok(answering)));
        }
        let residency = residency::take(&mut head.headers);
        let notes = GuestNotes::take(&mut head.headers);
        let decision = self.decide(from, &head, residency, notes);
        let worker = Arc::clone(&self.service.worker);
        Box::pin(async move {
            let (terms, coming) = decision?;
            let serving: Serving = Box::pin(async move {
                let serving = serve_guest(worker, request(head, body), terms, coming);
                // Boxed by itself: this future is the largest part of a guest's memory.
                let served = Box::pin(serving).await;
                Ok(answer(served).map(boxed))
            });
            Ok(serving)
        })
    }
}

/// Terms of a request that is accepted, and its slot among the coming guests.
type Decided = (GuestTerms, Option<PendingGuest>);

impl Guests {
    /// Answers a question of the node itself, to which no terms of guests apply; `None` for a
    /// client's request. A client may name any path, but its requests name the client.
    fn node_question(&self, head: &ForwardHead) -> Option<Serving> {
        if head.client.is_some() {
            return None;
        }
        self.service.answers.answer(&head.uri)
    }

    fn decide(
        &self,
        from: &Identity,
        head: &ForwardHead,
        residency: Residency,
        notes: GuestNotes,
    ) -> Result<Decided, Refused> {
        let refused = |reason| Err(Refused { reason, wait_ms: None });
        if head.hop > HOPS_MAX {
            return refused(RefusedReason::Hops);
        }
        if head.deadline_ms == Some(0) {
            return refused(RefusedReason::Deadline);
        }
        if self.switches.is_leaving() {
            return refused(RefusedReason::Draining);
        }
        let terms = GuestTerms {
            model: head.model.clone(),
            version: head.pin.clone(),
            time_left: head.deadline_ms.map_or(NO_DEADLINE, Duration::from_millis),
            hop: head.hop,
            client: head.client.unwrap_or_else(|| std::net::Ipv4Addr::UNSPECIFIED.into()),
            prefix: head.prefix.clone(),
            tenant: head.tenant.as_deref().map(TenantName::from),
            priority: head.priority,
            residency,
            usage: notes.usage,
            deaths: notes.deaths,
            named: notes.named,
        };
        match admits_guest(&self.service.worker, head.uri.path(), &terms) {
            GuestAnswer::Welcome(coming) => Ok((terms, coming)),
            GuestAnswer::Busy { wait_ms } => {
                Err(Refused { reason: RefusedReason::Busy, wait_ms: Some(wait_ms as u32) })
            }
            GuestAnswer::OutsideResidency => {
                self.tell_residency_refusal(from, &terms.residency);
                refused(RefusedReason::Residency)
            }
        }
    }

    /// Logs a request that may not be served here. The sender should have known, unless rules have
    /// just changed.
    fn tell_residency_refusal(&self, from: &Identity, residency: &Residency) {
        if let Some(requests) = self.residency_refusals.note(from.node(), Instant::now()) {
            let (node, region) = (from.node(), from.region());
            tracing::error!(%node, %region, requests, last = %residency,
                "guests came that may not be served here, since this was last said of their sender");
        }
    }
}

fn request(head: ForwardHead, body: ForwardBody) -> Request<LinkBody> {
    let mut request = Request::new(body.map_err(BoxError::from).boxed_unsync());
    *request.method_mut() = head.method;
    *request.uri_mut() = head.uri;
    *request.headers_mut() = head.headers;
    // The link can carry what HTTP/2 can: gRPC needs that.
    *request.version_mut() = Version::HTTP_2;
    request
}

fn answer(served: Result<Response<LinkBody>, GuestError>) -> Response<LinkBody> {
    match served {
        Ok(mut response) => {
            // With these headers from a replica, the request would be served a second time
            // elsewhere.
            response.headers_mut().remove(&NOT_SERVED);
            response.headers_mut().remove(&NOT_ABLE);
            response
        }
        Err(refusal) => not_served(&refusal),
    }
}

/// Builds the reply for a request that was accepted, but whose slot was taken in the meantime.
fn not_served(refusal: &GuestError) -> Response<LinkBody> {
    let empty: LinkBody = Empty::new().map_err(|never| match never {}).boxed_unsync();
    let mut response = Response::new(empty);
    *response.status_mut() = StatusCode::SERVICE_UNAVAILABLE;
    let wait_ms = refusal.wait.unwrap_or_default().as_millis();
    let wait_ms = HeaderValue::from(u64::try_from(wait_ms).unwrap_or(u64::MAX));
    response.headers_mut().insert(NOT_SERVED.clone(), wait_ms);
    if !refusal.is_load {
        response.headers_mut().insert(NOT_ABLE.clone(), HeaderValue::from_static("1"));
    }
    response
}

fn boxed(body: LinkBody) -> BoxBody {
    Box::pin(body)
}
