//! Turns a replica's reply into the client's.

use std::sync::Arc;
use std::time::Instant;

use http::request::Parts;
use http::{HeaderMap, Response, StatusCode, Version, header};
use spillway_protocol::grpc::reply_fault;
use spillway_protocol::{FailureCause, ReplyApi};
use spillway_request::flavour::Flavour;
use spillway_request::headers::{clean_reply, is_event_stream};
use spillway_request::prepared::Prepared;
use spillway_route::Policy;
use spillway_view::{HeldSlot, UsageReports};

use crate::relay::{Relay, RelayPlan, ReplyBody, Upstream};
use crate::request::cache_feedback::{forward_report, is_readable};
use crate::request::continuation::{StreamContinuation, is_stream};
use crate::request::dispatch::Dispatched;
use crate::request::exchange::Exchange;
use crate::request::record::RequestRecord;
use crate::request::response_cookies::ResponseCookies;
use crate::request::{grpc_reply, response_headers};

impl Exchange {
    /// Turns a replica's reply into the client's, with the headers and cookies for the client.
    pub(super) fn deliver(
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
