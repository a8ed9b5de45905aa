//! HTTP service that hyper calls for each request.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::SystemTime;

use bytes::Bytes;
use http::{HeaderValue, Method, Request, Response, Version, header};
use hyper::body::Incoming;
use spillway_front::client::{ConnectionFacts, add_date};
use spillway_protocol::{CODE_HEADER, Endpoint, ErrorKind, Protocol, REQUEST_ID, SHED_REASON};
use spillway_request::cors::SEC_FETCH_SITE;
use spillway_request::head::headers_too_large;
use spillway_request::headers::RequestIdentity;
use spillway_route::ShedReason;
use spillway_transport::WireBody;

use crate::relay::{Pump, ReplyBody};
use crate::request::exchange::Exchange;
use crate::request::record::RequestRecord;
use crate::request::refusal::refuse;
use crate::request::response_headers;
use crate::worker::Worker;

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
    response_headers::tell_control_age(&gateway.clients, &gateway.switches, response.headers_mut());
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
