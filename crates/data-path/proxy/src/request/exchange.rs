//! Serves one request, from its head to the head of its reply.

use std::sync::Arc;
use std::time::{Duration, Instant};

use http::request::Parts;
use http::{Method, Request, Response, Version, header};
use http_body::Body;
use spillway_front::access::Grant;
use spillway_front::client::ConnectionFacts;
use spillway_protocol::{Endpoint, ErrorKind, GatewayError, Protocol, RETRY_DELAY, is_messages};
use spillway_rate_limit::Rates;
use spillway_request::headers::{
    RequestIdentity, prepare_forwarding, prepare_guest, remove_engine_headers,
};
use spillway_request::intake::discard;
use spillway_request::local::{LocalAnswer, is_listed, local_answer};
use spillway_request::prepare::prepare;
use spillway_request::prepared::Prepared;
use spillway_request::surroundings::Surroundings;
use spillway_request::{grpc, rates};
use spillway_transport::WireBody;
use spillway_view::{GuestTerms, HeldSlot, PendingGuest, View};

use crate::relay::{Pump, ReplyBody};
use crate::request::dispatch::{Dispatch, Dispatched, Interim};
use crate::request::grpc_reply;
use crate::request::record::RequestRecord;
use crate::request::redirect::confine_reply;
use crate::request::refusal::refuse;
use crate::request::response_cookies::{ResponseCookies, begin_session};
use crate::request::tenant::tenant_key;
use crate::worker::Worker;

/// Most seconds of random delay added to a Retry-After without a better prediction.
const SPREAD_S_MAX: u64 = 2;

/// Errors after which another region may still serve the request: no replica has it.
const MAY_DO_BETTER: [ErrorKind; 6] = [
    ErrorKind::Overloaded,
    ErrorKind::NoReplica,
    ErrorKind::NodeShortage,
    ErrorKind::ReplicaConnect,
    ErrorKind::ModelNotFound,
    ErrorKind::RouteNotFound,
];

/// Request with all that is needed to serve it.
pub(super) struct Exchange {
    pub(super) worker: Arc<Worker>,
    pub(super) client: Arc<ConnectionFacts>,
    pub(super) view: Arc<View>,
    pub(super) dice: fastrand::Rng,
    /// Terms of the node that forwarded the request; `None` for a client's own request.
    pub(super) guest: Option<GuestTerms>,
    /// True if a browser sent the request for a web page.
    pub(super) is_of_browser: bool,
    /// Share of a guest in the count of guests without a slot.
    pub(super) coming: Option<PendingGuest>,
    /// Pump that continues the reply while its client takes nothing; `None` for a guest, whose
    /// reply is read ahead by the node of its client.
    pub(super) pump: Option<Arc<Pump>>,
}

/// A guest that cannot be served here: another region may serve it.
#[derive(Debug)]
pub(super) struct SentElsewhere {
    pub(super) error: GatewayError,
    pub(super) record: RequestRecord,
}

impl Exchange {
    pub(super) fn new(
        worker: Arc<Worker>,
        client: Arc<ConnectionFacts>,
        dice: fastrand::Rng,
        guest: Option<GuestTerms>,
    ) -> Self {
        let view = worker.gateway.routing.view();
        let is_of_browser = false;
        Self { view, worker, client, dice, guest, is_of_browser, coming: None, pump: None }
    }

    /// Serves the request.
    ///
    /// Returns an error if the request is a guest's, and no part of it reached a replica.
    // An async block, since an async function would hold its arguments twice for the whole request.
    pub(super) fn run<'a>(
        self,
        request: Request<WireBody>,
        identity: &'a RequestIdentity,
    ) -> impl Future<Output = Result<Response<ReplyBody>, Box<SentElsewhere>>> + Send + 'a
    where
        Self: 'a,
    {
        let (head, mut body) = request.into_parts();
        let is_http1 = self.guest.is_none() && head.version <= Version::HTTP_11;
        // A client that waits for 100 Continue sends nothing, and reading would make it send.
        let is_sent = !head.headers.contains_key(header::EXPECT);
        async move {
            let response = self.answer(head, &mut body, identity).await?;
            // The request was answered before its body was read. With all of it read, the
            // connection can be kept.
            if is_http1 && is_sent && !body.is_end_stream() {
                discard(body).await;
            }
            Ok(response)
        }
    }

    async fn answer(
        mut self,
        mut head: Parts,
        body: &mut WireBody,
        identity: &RequestIdentity,
    ) -> Result<Response<ReplyBody>, Box<SentElsewhere>> {
        let mut record = RequestRecord::new(Arc::clone(&self.worker), Arc::clone(&self.client));
        record.named(identity, self.guest.is_some());
        let (path, call) = (head.uri.path().to_owned(), grpc::called(&head));
        let endpoint = call.unwrap_or_else(|| Endpoint::classify(&path));
        let prefixed = self.view.prefixed_route(&path);
        // A route's path may look like that of a built-in endpoint, but it is not.
        let endpoint =
            if prefixed.is_some() && call.is_none() { Endpoint::Other } else { endpoint };
        let protocol = protocol_of(prefixed.map(|route| route.spec.protocol), call, &path);
        record.asked_for(operation(endpoint, protocol));
        let grant = match self.admitted(&head, endpoint, prefixed.is_some()).await {
            Ok(grant) => grant,
            Err(error) => return Ok(refuse(error, protocol, endpoint, record)),
        };
        record.admitted(&grant);
        if prefixed.is_none() {
            let gateway = &self.worker.gateway;
            if let Endpoint::Grpc(method) = endpoint
                && method.is_local()
            {
                let asked = (&head, method);
                let reply = grpc_reply::answer(gateway, &self.view, asked, body.take(), record);
                return Ok(reply.await);
            }
            match self.answer_here(&grant, &head.method, endpoint).await {
                Some(Ok(local)) => {
                    if local.is_health {
                        record.forget();
                    }
                    record.answered(local.response.status().as_u16());
                    return Ok(local.response.map(ReplyBody::full));
                }
                Some(Err(error)) => return Ok(refuse(error, protocol, endpoint, record)),
                None => {}
            }
        }
        // After the local answers: health checks must be answered even when memory is full.
        if let Err(error) = self.check_room(&head) {
            return self.refused(error, protocol, endpoint, record);
        }
        let grant = self.located(grant, &head.headers);
        let around = self.around(&head, &grant, record.started());
        let prepared = prepare(around, body, endpoint).await;
        let mut prepared = match prepared.and_then(|it| self.allowed(around, it, &mut record)) {
            Ok(prepared) => prepared,
            Err(error) => return self.refused(error, protocol, endpoint, record),
        };
        if let Some(newer) = prepared.target.newer_view.take() {
            self.view = newer;
        }
        prepared.target.coming = self.coming.take();
        // Found before the reply takes `prepared` along; read after the charge, so that it counts.
        let limited = self.limited(&grant, &prepared);
        let asked = match self.charge(&grant, &prepared, &mut record) {
            Ok(()) => self.ask(&mut head, &mut prepared, identity, &mut record).await,
            Err(error) => Err(error),
        };
        let reply = match asked {
            Ok(asked) => Ok(self.deliver(head, prepared, asked, record)),
            Err(error) => self.refused(error, protocol, endpoint, record),
        };
        self.with_rates(reply, limited)
    }

    /// Returns the context for reading the request.
    fn around<'a>(
        &'a self,
        head: &'a Parts,
        grant: &'a Grant,
        started: Instant,
    ) -> Surroundings<'a> {
        Surroundings {
            gateway: &self.worker.gateway,
            view: &self.view,
            head,
            client: self.client_address(&head.headers),
            is_one_client: self.is_one_client(&head.headers),
            started,
            guest: self.guest.as_ref(),
            grant,
        }
    }

    /// Answers an endpoint that needs no replica; `None` for all others. For an unknown model the
    /// replicas are asked again.
    async fn answer_here(
        &mut self,
        grant: &Grant,
        method: &Method,
        endpoint: Endpoint<'_>,
    ) -> Option<Result<LocalAnswer, GatewayError>> {
        let gateway = &self.worker.gateway;
        let answer = local_answer(gateway, &self.view, grant, method, endpoint);
        let Endpoint::ModelById { model } = endpoint else { return answer };
        let is_unknown =
            matches!(&answer, Some(Err(error)) if error.kind == ErrorKind::ModelNotFound);
        if !is_unknown || self.guest.is_some() {
            return answer;
        }
        let find = |view: Arc<View>| is_listed(&view, model).then_some(view);
        if let Some(newer) = Box::pin(gateway.routing.look_again(find)).await {
            self.view = newer;
            return local_answer(gateway, &self.view, grant, method, endpoint);
        }
        answer
    }

    /// Returns the rate limits to report to the client; `None` for a guest, whose own node reports
    /// them.
    fn limited(&self, grant: &Grant, prepared: &Prepared) -> Option<Rates> {
        let gateway = &self.worker.gateway;
        self.guest
            .is_none()
            .then(|| rates::rates(&gateway.clients.quotas, grant, &prepared.inquiry))
            .flatten()
    }

    /// Adds the current state of these rate limits to the reply.
    fn with_rates(
        &self,
        mut reply: Result<Response<ReplyBody>, Box<SentElsewhere>>,
        limited: Option<Rates>,
    ) -> Result<Response<ReplyBody>, Box<SentElsewhere>> {
        if let (Ok(response), Some(limited)) = (&mut reply, limited) {
            rates::tell(&self.worker.gateway.clients.quotas, &limited, response.headers_mut());
        }
        reply
    }

    /// Sends the request to a replica or another region, and waits for the reply's head.
    async fn ask(
        &self,
        head: &mut Parts,
        prepared: &mut Prepared,
        identity: &RequestIdentity,
        record: &mut RequestRecord,
    ) -> Result<(Dispatched, ResponseCookies), GatewayError> {
        record.routed(&prepared.route.spec.name, prepared.inquiry.model.as_ref());
        if let Some(chosen) = &prepared.target.arm {
            record.split(chosen);
        }
        let gateway = &self.worker.gateway;
        let session = begin_session(&gateway.routing, prepared, &head.headers);
        let is_built_in = prepared.route.spec.path_prefix.is_none();
        // Before this node adds its own headers, which need no check.
        remove_engine_headers(&mut head.headers, prepared.route.spec.engine_fields, is_built_in);
        let forward_authorization = prepared.route.spec.forward_authorization;
        match &self.guest {
            // The client's own node has done the rest.
            Some(guest) => {
                prepare_guest(&mut head.headers, guest, identity, forward_authorization);
            }
            None => prepare_forwarding(head, &self.client, identity, forward_authorization),
        }
        record.planned(prepared.body_wait);
        let tenant = tenant_key(&gateway.routing.key_hasher, prepared);
        let dispatch = Dispatch {
            worker: &self.worker,
            view: Arc::clone(&self.view),
            regions: gateway.routing.regions(),
            prepared,
            head,
            dice: self.dice.clone(),
            started: record.started(),
            tenant,
            interim: Interim::default(),
        };
        let mut dispatched = dispatch.run(record).await?;
        confine_reply(&mut dispatched, prepared, head)?;
        let beyond = match (&prepared.route.sessions, &dispatched.target) {
            // The client gets a single cookie, which names both the region and that region's
            // choice.
            (Some(sessions), HeldSlot::Region(_)) => {
                sessions.take_cookie(dispatched.reply.headers_mut())
            }
            _ => Vec::new(),
        };
        let replied = (&dispatched.target, dispatched.reply.status(), &beyond[..]);
        let cookies =
            ResponseCookies::of(gateway, prepared, &head.headers, session.as_ref(), replied);
        Ok((dispatched, cookies))
    }

    /// Answers with an error of the gateway, unless the request is a guest that another region may
    /// serve.
    fn refused(
        &self,
        error: GatewayError,
        protocol: Protocol,
        endpoint: Endpoint<'_>,
        mut record: RequestRecord,
    ) -> Result<Response<ReplyBody>, Box<SentElsewhere>> {
        let error = self.spread(error);
        if self.guest.is_some() && MAY_DO_BETTER.contains(&error.kind) {
            record.refused(&error);
            record.refused_with(error.message.clone());
            return Err(Box::new(SentElsewhere { error, record }));
        }
        Ok(refuse(error, protocol, endpoint, record))
    }

    /// Adds random delay to a Retry-After without a better prediction, so that refused clients do
    /// not return at the same moment.
    fn spread(&self, error: GatewayError) -> GatewayError {
        // A retry does not help a client whose deadline was too short.
        let is_late = error.kind == ErrorKind::DeadlineExceeded;
        if error.shed.is_none() || error.retry_after.is_some() || is_late {
            return error;
        }
        let later_s = self.dice.clone().u64(0..=SPREAD_S_MAX);
        error.with_retry_after(RETRY_DELAY + Duration::from_secs(later_s))
    }
}

/// Returns OpenTelemetry's name of the operation; `None` if it has none.
fn operation(endpoint: Endpoint<'_>, protocol: Protocol) -> Option<&'static str> {
    // Messages have no endpoint of their own: they are recognized by their protocol.
    endpoint.operation().or_else(|| (protocol == Protocol::Anthropic).then_some("chat"))
}

/// Returns the protocol in whose format errors are sent.
fn protocol_of(route: Option<Protocol>, call: Option<Endpoint<'_>>, path: &str) -> Protocol {
    match route {
        // A client that does not speak gRPC cannot read its errors.
        None | Some(Protocol::Grpc) if call.is_some() => Protocol::Grpc,
        None | Some(Protocol::Grpc) => Protocol::of_path(path),
        Some(Protocol::OpenAi | Protocol::Raw) if is_messages(path) => Protocol::Anthropic,
        Some(protocol) => protocol,
    }
}
