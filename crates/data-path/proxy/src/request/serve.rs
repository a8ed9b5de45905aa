//! HTTP service that hyper calls for each request.

use std::convert::Infallible;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use bytes::Bytes;
use http::request::Parts;
use http::{
    HeaderMap, HeaderName, HeaderValue, Method, Request, Response, StatusCode, Version, header,
};
use http_body::Body;
use hyper::body::Incoming;
use spillway_front::access::{AccessMode, Grant};
use spillway_front::client::{ConnectionFacts, add_date};
use spillway_protocol::grpc::{GrpcMethod, reply_fault};
use spillway_protocol::{
    CODE_HEADER, Endpoint, ErrorKind, FailureCause, GatewayError, Protocol, REQUEST_ID,
    RETRY_DELAY, ReplyApi, SHED_REASON, is_messages,
};
use spillway_rate_limit::Rates;
use spillway_request::cors::SEC_FETCH_SITE;
use spillway_request::flavour::Flavour;
use spillway_request::head::{METHODS, check_guest_head, check_head, headers_too_large};
use spillway_request::headers::{
    RequestIdentity, clean_reply, is_event_stream, prepare_forwarding, prepare_guest,
    remove_engine_headers,
};
use spillway_request::intake::discard;
use spillway_request::local::{LocalAnswer, is_listed, local_answer};
use spillway_request::methods::allowed_methods;
use spillway_request::prepare::prepare;
use spillway_request::prepared::Prepared;
use spillway_request::surroundings::Surroundings;
use spillway_request::{grpc, rates};
use spillway_route::{Policy, ShedReason};
use spillway_transport::WireBody;
use spillway_types::Inquiry;
use spillway_view::{GuestTerms, HeldSlot, PendingGuest, UsageReports, View};

use crate::relay::{Pump, Relay, RelayPlan, ReplyBody, Upstream};
use crate::request::cache_feedback::{forward_report, is_readable};
use crate::request::charge::{Charge, check_budget};
use crate::request::continuation::{StreamContinuation, is_stream};
use crate::request::dispatch::{Dispatch, Dispatched, Interim};
use crate::request::errors::shed_error;
use crate::request::record::RequestRecord;
use crate::request::redirect::confine_reply;
use crate::request::response_cookies::{ResponseCookies, begin_session};
use crate::request::tenant::tenant_key;
use crate::request::{grpc_reply, response_headers};
use crate::worker::Worker;

/// Most seconds of random delay added to a Retry-After without a better prediction.
const SPREAD_S_MAX: u64 = 2;

/// Header by which the libraries of OpenAI and Anthropic decide if they retry by themselves.
const SHOULD_RETRY: HeaderName = HeaderName::from_static("x-should-retry");

/// Errors after which another region may still serve the request: no replica has it.
const MAY_DO_BETTER: [ErrorKind; 6] = [
    ErrorKind::Overloaded,
    ErrorKind::NoReplica,
    ErrorKind::NodeShortage,
    ErrorKind::ReplicaConnect,
    ErrorKind::ModelNotFound,
    ErrorKind::RouteNotFound,
];

/// Serves one request. Never fails: every error is a reply in the protocol's own format. `pump`
/// must be polled by the task that polls the reply's body.
pub(crate) async fn serve(
    worker: Arc<Worker>,
    client: Arc<ConnectionFacts>,
    pump: Arc<Pump>,
    request: Request<Incoming>,
) -> Result<Response<ReplyBody>, Infallible> {
    let mut dice = worker.gateway.routing.dice();
    let is_traced = worker.gateway.switches.draws_trace(&mut dice);
    let identity = RequestIdentity::of(request.headers(), &mut dice, is_traced);
    let is_head = request.method() == Method::HEAD;
    let is_http1 = request.version() <= Version::HTTP_11;
    let unread = client.unread.clone();
    let request = request.map(|body| WireBody::of_client(body, &unread));
    let gateway = Arc::clone(&worker.gateway);
    let origin = request.headers().get(header::ORIGIN).cloned();
    if origin.is_some()
        && let Some(told) = gateway.clients.cors().preflight(request.method(), request.headers())
    {
        // A preflight carries no key, and needs no replica.
        RequestRecord::new(worker, client).answered(told.status().as_u16());
        let mut told = told.map(ReplyBody::full);
        add_date(told.headers_mut(), SystemTime::now());
        return Ok(told);
    }
    let is_of_browser = origin.is_some() || request.headers().contains_key(&SEC_FETCH_SITE);
    let exchange =
        Exchange { pump: Some(pump), is_of_browser, ..Exchange::new(worker, client, dice, None) };
    let mut response = match exchange.run(request, &identity).await {
        Ok(response) => response,
        // Only guests are sent elsewhere.
        Err(sent) => refuse(sent.error, Protocol::Raw, Endpoint::Other, sent.record),
    };
    if is_head && let Some(length) = response.body().own_length() {
        // HTTP/2 would send the body; a replica's own reply to HEAD has none.
        response.headers_mut().insert(header::CONTENT_LENGTH, HeaderValue::from(length));
        *response.body_mut() = ReplyBody::full(Bytes::new());
    }
    // A kept connection would close just when its client sends the next request. HTTP/2 has GOAWAY
    // for this. A reply that comes before the end of an upload is the last of its connection: the
    // rest may never be read.
    if is_http1 && (gateway.switches.is_leaving() || unread.is_left() || refuses_body(&response)) {
        response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
    }
    let cors = gateway.clients.cors();
    if !cors.is_off() {
        cors.mark(origin.as_ref(), response.headers_mut());
    }
    response_headers::tell_control_age(&gateway, response.headers_mut());
    response.headers_mut().insert(REQUEST_ID.clone(), identity.request_id);
    add_date(response.headers_mut(), SystemTime::now());
    Ok(response)
}

/// Notes a request whose head is larger than the limit. The HTTP library has answered it.
pub(crate) fn note_large_head(worker: Arc<Worker>, client: Arc<ConnectionFacts>) {
    let error = headers_too_large(worker.gateway.door.limits().header_bytes_max);
    let mut record = RequestRecord::new(worker, client);
    record.refused(&error);
    record.refused_with(error.message);
}

/// Returns OpenTelemetry's name of the operation; `None` if it has none.
fn operation(endpoint: Endpoint<'_>, protocol: Protocol) -> Option<&'static str> {
    // Messages have no endpoint of their own: they are recognized by their protocol.
    endpoint.operation().or_else(|| (protocol == Protocol::Anthropic).then_some("chat"))
}

/// Request with all that is needed to serve it.
pub(super) struct Exchange {
    worker: Arc<Worker>,
    client: Arc<ConnectionFacts>,
    view: Arc<View>,
    dice: fastrand::Rng,
    /// Terms of the node that forwarded the request; `None` for a client's own request.
    guest: Option<GuestTerms>,
    /// True if a browser sent the request for a web page.
    is_of_browser: bool,
    /// Share of a guest in the count of guests without a slot.
    pub(super) coming: Option<PendingGuest>,
    /// Pump that continues the reply while its client takes nothing; `None` for a guest, whose
    /// reply is read ahead by the node of its client.
    pump: Option<Arc<Pump>>,
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

    /// Authenticates the request. Called before anything else of it is read, except that the head
    /// is checked and health checks are recognized.
    fn admit(
        &self,
        head: &Parts,
        endpoint: Endpoint<'_>,
        is_routed: bool,
    ) -> Result<Arc<Grant>, GatewayError> {
        let (gateway, headers) = (&self.worker.gateway, &head.headers);
        let authenticator = &gateway.clients.authenticator;
        if let Some(guest) = &self.guest {
            check_guest_head(head, gateway.door.limits().header_bytes_max)?;
            let grant =
                authenticator.vouched_by(guest.tenant.as_ref(), guest.priority, &guest.residency);
            return Ok(Arc::new(grant));
        }
        check_head(head, gateway.door.limits().header_bytes_max)?;
        match self.client.access.mode() {
            AccessMode::None => Ok(authenticator.anybody()),
            // Health checks need no key.
            _ if !is_routed && endpoint.is_health() => Ok(authenticator.anybody()),
            AccessMode::Keys => authenticator.admit(headers),
            AccessMode::Headers => authenticator.believe(headers, self.client.is_trusted()),
        }
    }

    /// Authenticates the request like [`Self::admit`]. A key that is unknown here is waited for a
    /// moment. Notes the clients that ask if the node is ready.
    async fn admitted(
        &self,
        head: &Parts,
        endpoint: Endpoint<'_>,
        is_routed: bool,
    ) -> Result<Arc<Grant>, GatewayError> {
        if !is_routed && asks_readiness(endpoint) {
            let polls = &self.worker.gateway.clients.readiness_polls;
            polls.note(self.client.address, Instant::now());
        }
        match self.admit(head, endpoint, is_routed) {
            Ok(grant) => Ok(grant),
            // Boxed, since few requests need its room.
            Err(error) => Box::pin(self.admit_soon(head, error)).await,
        }
    }

    /// Returns the grant of a key that this node does not know yet, once it does: another node may
    /// have made it a moment ago.
    async fn admit_soon(
        &self,
        head: &Parts,
        error: GatewayError,
    ) -> Result<Arc<Grant>, GatewayError> {
        let is_key = self.guest.is_none() && self.client.access.mode() == AccessMode::Keys;
        if !is_key || error.kind != ErrorKind::KeyInvalid {
            return Err(error);
        }
        let (headers, client) = (&head.headers, self.client_address(&head.headers));
        let admitted = self.worker.gateway.clients.authenticator.admit_soon(headers, client).await;
        admitted.unwrap_or(Err(error))
    }

    /// Checks that a replica may work for the request: no web page of another origin sent it to a
    /// listener without keys, and the node has memory left.
    fn check_room(&self, head: &Parts) -> Result<(), GatewayError> {
        let gateway = &self.worker.gateway;
        // A key is what no page can send without asking first.
        if self.is_of_browser && self.client.access.mode() == AccessMode::None {
            gateway.clients.cors().check_page(head)?;
        }
        if gateway.door.memory().admits_request() {
            Ok(())
        } else {
            Err(shed_error(ShedReason::Memory))
        }
    }

    /// Returns the client's address, as the most trusted source gives it.
    fn client_address(&self, headers: &HeaderMap) -> IpAddr {
        match &self.guest {
            Some(guest) => guest.client,
            None => self.client.trusted_proxies.client(self.client.address, headers),
        }
    }

    /// Adds the rules for the client's country to the grant, and counts the request by country. A
    /// guest was located by the first node, and brings its rules along.
    fn located(&self, grant: Arc<Grant>, headers: &HeaderMap) -> Arc<Grant> {
        let gateway = &self.worker.gateway;
        let locate = || gateway.routing.locations().bound(self.client_address(headers));
        let Some(client) = self.guest.is_none().then(locate).flatten() else { return grant };
        gateway.counters.countries.count(client.country);
        match client.residency.is_anywhere() {
            true => grant,
            false => Arc::new(grant.of_client(Some(client))),
        }
    }

    /// Returns true if the address belongs to a single client: false for a trusted proxy that does
    /// not name its client, and for a guest, which was counted at its own node.
    fn is_one_client(&self, headers: &HeaderMap) -> bool {
        let is_proxy =
            || self.client.is_trusted() && self.client_address(headers) == self.client.address;
        self.guest.is_none() && !self.client.is_unnamed && !is_proxy()
    }

    /// Returns the request if residency rules allow a region that could serve it.
    fn allowed(
        &self,
        around: Surroundings<'_>,
        prepared: Prepared,
        record: &mut RequestRecord,
    ) -> Result<Prepared, GatewayError> {
        if let Err(error) = around.check_regions(&prepared) {
            self.note_rules(&prepared, record);
            return Err(error);
        }
        Ok(prepared)
    }

    /// Notes the residency rules that no region fits, and what they leave out. A guest's other regions are
    /// those of its own node.
    #[cold]
    fn note_rules(&self, prepared: &Prepared, record: &mut RequestRecord) {
        record.prepared(prepared);
        record.routed(&prepared.route.spec.name, prepared.inquiry.model.as_ref());
        if self.guest.is_none() {
            let Inquiry { model, residency, .. } = &prepared.inquiry;
            let regions = self.worker.gateway.routing.regions();
            record.left_out(regions.left_out(model.as_ref(), residency));
        }
    }

    /// Notes the tokens of a request, and charges a client's own request to its quotas, unless its
    /// budget is spent; a guest was charged at its own node.
    fn charge(
        &self,
        grant: &Grant,
        prepared: &Prepared,
        record: &mut RequestRecord,
    ) -> Result<(), GatewayError> {
        record.prepared(prepared);
        if self.guest.is_none() {
            record.routed(&prepared.route.spec.name, prepared.inquiry.model.as_ref());
            check_budget(&self.worker.gateway.clients.budgets, prepared.inquiry.tenant.as_ref())?;
            record.charged(Charge::take(
                &self.worker.gateway.clients.quotas,
                &prepared.route.spec.name,
                grant,
                &prepared.inquiry,
                &prepared.cost,
            )?);
        }
        Ok(())
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

    /// Turns a replica's reply into the client's, with the headers and cookies for the client.
    fn deliver(
        &self,
        head: Parts,
        mut prepared: Prepared,
        (mut dispatched, cookies): (Dispatched, ResponseCookies),
        mut record: RequestRecord,
    ) -> Response<ReplyBody> {
        if prepared.fell_back_from().is_some() {
            record.fell_back(&prepared.route.spec.name, prepared.inquiry.model.as_ref());
        }
        let policy = prepared.route.spec.policy;
        let is_success = dispatched.reply.status().is_success();
        // A reply of which a part was read before the relay is neither events nor encoded.
        let was_read = dispatched.reader.is_some();
        let plan = RelayPlan {
            worker: Arc::clone(&self.worker),
            api: ReplyApi::of_path(head.uri.path()),
            reader: dispatched.reader.take(),
            is_known_engine: is_known_engine(&dispatched.target),
            flavour: prepared.flavour,
            // The node of a guest's client removes usage that its client did not ask for.
            strip_usage: self.guest.is_none() && prepared.strips_usage(dispatched.asked_usage),
            // An unsuccessful reply stores nothing, whatever ids it repeats.
            stored_for: prepared.stored_for.take().filter(|_| is_success),
            tenant: prepared.inquiry.tenant.clone(),
            first_byte: prepared.route.spec.timeouts.first_byte,
            idle: prepared.route.spec.timeouts.idle,
            // The node of a guest's client sends them.
            keep_alive: prepared.route.spec.timeouts.keep_alive.filter(|_| self.guest.is_none()),
            // Another region limits its replicas' silence itself, and here only the time since the
            // head counts.
            asked_at: record.asked_at().unwrap_or_else(Instant::now),
            deadline: prepared.inquiry.deadline,
            mask: prepared
                .hides_cache_at(
                    &self.worker.gateway.clients.authenticator,
                    Some(&dispatched.target),
                )
                .then(Box::default),
            client_half: prepared.body.take_half(),
            hasher: prepared
                .reply_hasher
                .take()
                .filter(|_| was_read || is_readable(&dispatched.reply)),
            forwarded: forward_report(&dispatched.target, &dispatched.reply, &prepared),
            resume: (!was_read && is_stream(&dispatched.reply))
                .then(|| StreamContinuation::of(&self.worker, prepared, head, &self.dice))
                .flatten(),
        };
        let mut response = self.pass_on(plan, dispatched, &policy, record);
        cookies.put(response.headers_mut());
        response
    }

    /// Relays a replica's reply to the client.
    fn pass_on(
        &self,
        plan: RelayPlan,
        dispatched: Dispatched,
        policy: &Policy,
        mut record: RequestRecord,
    ) -> Response<ReplyBody> {
        let Dispatched { reply, target, mut observer, choice, .. } = dispatched;
        if let Some(observer) = &mut observer {
            observer.head(&reply);
        }
        let (mut head, body) = reply.into_parts();
        if plan.flavour == Flavour::Grpc
            && let Some(trailers) = reply_fault(head.status, &head.headers)
        {
            return grpc_reply::translated(trailers, record);
        }
        if head.status.is_client_error() || head.status.is_server_error() {
            record.failed(passed_code(&head.headers, &target));
        }
        let upstream = Upstream { body, target, observer };
        // Only nodes may set headers about their own errors and about routing.
        clean_reply(&mut head.headers, upstream.target.replica().is_some());
        // A 204 must not have a length (RFC 9110, section 8.6).
        if head.status == StatusCode::NO_CONTENT {
            head.headers.remove(header::CONTENT_LENGTH);
        }
        // The version is that of each connection; hyper lowers it for older clients.
        head.version = Version::HTTP_11;
        if self.worker.gateway.switches.exposes_routing() {
            let hop = self.guest.as_ref().map_or(0, |guest| guest.hop);
            let region = self.worker.gateway.routing.own_region.as_str();
            response_headers::tell(
                &mut head.headers,
                &upstream.target,
                &choice,
                policy.name(),
                (region, hop),
            );
        }
        record.replying(head.status.as_u16(), is_event_stream(&head.headers));
        let relay = Relay::new(plan, &mut head, upstream, record);
        Response::from_parts(head, ReplyBody::relay(relay, self.pump.as_ref()))
    }
}

/// Returns true if the reply's engine is known to give a reason for the end of each answer.
pub(crate) fn is_known_engine(target: &HeldSlot) -> bool {
    target.replica().is_some_and(|replica| replica.spec().usage_reports != UsageReports::None)
}

/// Returns the code of an error that is passed on: its gateway's, if another region's sent it.
#[cold]
fn passed_code(headers: &HeaderMap, target: &HeldSlot) -> &'static str {
    match target {
        HeldSlot::Replica(_) => FailureCause::ReplicaError.code(),
        HeldSlot::Region(_) => grpc_reply::code_in(headers),
    }
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

/// Returns true for the gateway's own errors about a request's body. Even if all of that body was
/// discarded, no other request follows on its connection.
fn refuses_body(response: &Response<ReplyBody>) -> bool {
    if response.status().is_success() {
        return false;
    }
    let headers = response.headers();
    let says = |name, text: &str| headers.get(name).is_some_and(|value| value == text);
    let codes = [ErrorKind::BodyTooLarge, ErrorKind::BodyTimeout];
    codes.iter().any(|kind| says(&CODE_HEADER, kind.code()))
        || says(&SHED_REASON, ShedReason::Memory.name())
}

/// Builds the reply for an error of the gateway.
fn refuse(
    error: GatewayError,
    protocol: Protocol,
    endpoint: Endpoint<'_>,
    mut record: RequestRecord,
) -> Response<ReplyBody> {
    if protocol == Protocol::Grpc {
        return grpc_reply::refusal(&error, record);
    }
    record.refused(&error);
    let mut response = Response::new(ReplyBody::full(error.body(protocol)));
    *response.status_mut() = error.kind.status();
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    headers.insert(CODE_HEADER.clone(), HeaderValue::from_static(error.kind.code()));
    if let Some(reason) = error.shed {
        headers.insert(SHED_REASON.clone(), HeaderValue::from_static(reason));
    }
    if let Some(delay) = error.retry_delay() {
        // Rounded up: a client that returns slightly late is served, one that returns early is
        // refused again.
        let delay_s = delay.as_secs() + u64::from(delay.subsec_nanos() > 0);
        headers.insert(header::RETRY_AFTER, HeaderValue::from(delay_s));
    }
    if error.kind == ErrorKind::EnginesDied {
        headers.insert(SHOULD_RETRY, HeaderValue::from_static("false"));
    }
    if let Some(challenge) = challenge(error.kind) {
        headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static(challenge));
    }
    if error.kind == ErrorKind::MethodNotAllowed {
        let allowed = Some(allowed_methods(endpoint)).filter(|list| !list.is_empty());
        headers.insert(header::ALLOW, HeaderValue::from_static(allowed.unwrap_or(METHODS)));
    }
    record.refused_with(error.message);
    response
}

/// Returns the challenge for a request without a valid key (RFC 6750); `None` for other errors.
fn challenge(kind: ErrorKind) -> Option<&'static str> {
    match kind {
        ErrorKind::KeyMissing => Some("Bearer realm=\"spillway\""),
        ErrorKind::KeyInvalid => Some("Bearer realm=\"spillway\", error=\"invalid_token\""),
        _ => None,
    }
}

/// Returns true for an endpoint by which load balancers and other checkers learn if the node is ready.
fn asks_readiness(endpoint: Endpoint<'_>) -> bool {
    matches!(
        endpoint,
        Endpoint::Readyz
            | Endpoint::V2Ready
            | Endpoint::Steering
            | Endpoint::Grpc(GrpcMethod::ServerReady | GrpcMethod::HealthCheck)
    )
}
