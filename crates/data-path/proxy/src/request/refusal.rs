//! Replies for errors of the gateway.

use http::{HeaderName, HeaderValue, Response, header};
use spillway_protocol::{CODE_HEADER, Endpoint, ErrorKind, GatewayError, Protocol, SHED_REASON};
use spillway_request::head::METHODS;
use spillway_request::methods::allowed_methods;

use crate::relay::ReplyBody;
use crate::request::grpc_reply;
use crate::request::record::RequestRecord;

/// Header by which the libraries of OpenAI and Anthropic decide if they retry by themselves.
const SHOULD_RETRY: HeaderName = HeaderName::from_static("x-should-retry");

/// Builds the reply for an error of the gateway.
pub(super) fn refuse(
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
