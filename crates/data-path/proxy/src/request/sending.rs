//! The request as it is sent to one replica.

use std::time::Instant;

use http::header::ACCEPT_ENCODING;
use http::uri::PathAndQuery;
use http::{HeaderMap, Method, Request, Response, Uri};
use spillway_journey::Connection;
use spillway_protocol::UsageWish;
use spillway_request::headers::{
    address_to, keep_for_hosted_api, remove_client_keys, tell_time_left,
};
use spillway_request::prepared::Prepared;
use spillway_transport::coarse_clock;
use spillway_types::DownCause;
use spillway_upstream::{
    AttemptBounds, FailedAttempt, LineKind, OutboundBody, RequestBody, Sending, UpstreamBody,
    UpstreamLine, attempt,
};
use spillway_view::{KV_SESSION, Replica, kv_session};

use crate::request::asked::Asked;
use crate::request::attempt_observer::AttemptObserver;
use crate::request::dispatch::Dispatch;

impl Dispatch<'_> {
    /// Sends the request to a replica and waits for the reply's head.
    pub(super) async fn attempt(
        &mut self,
        asked: &mut Asked,
        connection: Connection,
    ) -> Result<Response<UpstreamBody>, FailedAttempt> {
        let (bounds, worker) = (self.bounds(connection), self.worker);
        let Asked { replica, observer, usage, .. } = asked;
        let mut sending = DispatchSending { dispatch: self, replica, observer, usage: *usage };
        attempt(worker.pools(), replica.connections(), &mut sending, bounds).await
    }

    /// Returns true if another replica can serve the request now, here or in another region. Reads
    /// the newest view, so call it when a replica fell silent and not for each request.
    fn is_served_elsewhere(&self, replica: &Replica) -> bool {
        let Prepared { inquiry, target, body, .. } = &*self.prepared;
        if !matches!(body, RequestBody::Buffered(_)) || self.prepared.pinned.is_some() {
            return false;
        }
        let gateway = &self.worker.gateway;
        let model = inquiry.model.as_ref();
        let is_served_away = || {
            let regions = gateway.routing.regions();
            inquiry.hop == 0 && model.is_some_and(|it| regions.serve(it, &inquiry.residency))
        };
        let view = gateway.routing.view();
        let route = view.route_again(&self.prepared.route);
        let group = route
            .as_ref()
            .and_then(|route| route.group_for(model, target.pin.as_ref()).ok().flatten());
        group.is_some_and(|group| view.is_served_beside(group, replica)) || is_served_away()
    }

    pub(super) fn bounds(&self, connection: Connection) -> AttemptBounds {
        AttemptBounds {
            timeouts: self.prepared.route.spec.timeouts,
            deadline: self.prepared.inquiry.deadline,
            connection,
            traffic: self.prepared.traffic(),
        }
    }

    /// Creates the request for a replica, which is asked for this usage; `None` if the body was
    /// streamed to an earlier attempt.
    pub(super) fn request(
        &mut self,
        replica: &Replica,
        usage: UsageWish,
    ) -> Option<Request<OutboundBody>> {
        let body = self.prepared.body_for(replica, usage)?;
        // Cloned, since another attempt may need them as they were.
        let mut headers: HeaderMap = self.head.headers.clone();
        // A compressed reply can be neither read nor changed.
        if self.prepared.flavour.is_read()
            || self.prepared.hides_cache(&self.worker.gateway.clients.authenticator, replica)
        {
            headers.remove(ACCEPT_ENCODING);
        }
        let fell_back = self.prepared.fell_back_from().is_some();
        // The headers were prepared by the first model's route, which may have let credentials
        // pass.
        if fell_back && !self.prepared.route.spec.forward_authorization {
            remove_client_keys(&mut headers);
        }
        self.name_session(&mut headers, replica);
        let traffic = self.prepared.traffic();
        let line = replica.connections().line(traffic);
        if replica.is_overflow() {
            keep_for_hosted_api(&mut headers);
        }
        address_to(&mut headers, replica, &line);
        let left = self.prepared.inquiry.deadline.remaining(coarse_clock::now());
        tell_time_left(&mut headers, left, traffic);
        let mut request = Request::new(body);
        *request.method_mut() = Method::clone(&self.head.method);
        *request.uri_mut() = uri(&line, &self.prepared.path);
        *request.headers_mut() = headers;
        Some(request)
    }

    /// Puts the id by which the replica's KV events name this request, in place of a client's. Other
    /// replicas get the client's own.
    fn name_session(&self, headers: &mut HeaderMap, replica: &Replica) {
        if replica.spec().kv_events_port.is_some()
            && let Some(session) = kv_session(&self.prepared.inquiry.prefix)
        {
            headers.insert(KV_SESSION, session);
        }
    }
}

/// Request of a dispatch that is sent to one replica.
struct DispatchSending<'r, 'd> {
    dispatch: &'r mut Dispatch<'d>,
    replica: &'r Replica,
    observer: &'r mut AttemptObserver,
    usage: UsageWish,
}

impl Sending for DispatchSending<'_, '_> {
    fn request(&mut self) -> Option<Request<OutboundBody>> {
        let request = self.dispatch.request(self.replica, self.usage)?;
        self.observer.sent();
        Some(request)
    }

    fn is_lost(&self, asked_at: Instant, now: Instant) -> bool {
        match self.replica.lost(asked_at, now) {
            Some(DownCause::Failure) => true,
            // It may still reply: it is waited for unless another replica can serve the request.
            Some(DownCause::Silence) => self.dispatch.is_served_elsewhere(self.replica),
            None => false,
        }
    }
}

/// Returns the URI: the path alone for HTTP/1.1; with scheme and authority for HTTP/2, which has no
/// `Host`.
fn uri(line: &UpstreamLine<'_>, path: &PathAndQuery) -> Uri {
    let mut parts = http::uri::Parts::default();
    parts.path_and_query = Some(path_at(line, path));
    if line.kind != LineKind::Http1 {
        let scheme = if line.tls.is_some() { "https" } else { "http" };
        parts.scheme = scheme.parse().ok();
        parts.authority = line.authority.as_bytes().try_into().ok();
    }
    Uri::from_parts(parts).unwrap_or_default()
}

/// Returns the path at the replica, below its base path.
pub(super) fn path_at(line: &UpstreamLine<'_>, path: &PathAndQuery) -> PathAndQuery {
    let joined = line.base.and_then(|base| base.join(path.as_str()).try_into().ok());
    joined.unwrap_or_else(|| path.clone())
}
