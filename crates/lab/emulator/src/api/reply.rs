//! Replies of endpoints.

use http::{HeaderValue, Response, StatusCode, header};
use serde::Serialize;

use super::error::ApiError;
use crate::body::ReplyBody;
use crate::event_stream::EventStream;

/// Result of an endpoint.
pub(crate) type Reply = Result<Response<ReplyBody>, ApiError>;

/// Returns a reply with a content type.
pub(crate) fn with_type(body: ReplyBody, content_type: &'static str) -> Response<ReplyBody> {
    let mut response = Response::new(body);
    let value = HeaderValue::from_static(content_type);
    response.headers_mut().insert(header::CONTENT_TYPE, value);
    response
}

/// Returns a JSON reply.
pub(crate) fn json(status: StatusCode, value: &impl Serialize) -> Response<ReplyBody> {
    // The types of this crate have string keys and serializers that never fail.
    let bytes = serde_json::to_vec(value).unwrap_or_default();
    let mut response = with_type(ReplyBody::whole(bytes), "application/json");
    *response.status_mut() = status;
    response
}

/// Returns a reply of server-sent events.
pub(crate) fn event_stream(stream: EventStream) -> Response<ReplyBody> {
    let body = ReplyBody::events(stream);
    let mut response = with_type(body, "text/event-stream; charset=utf-8");
    let value = HeaderValue::from_static("no-cache");
    response.headers_mut().insert(header::CACHE_CONTROL, value);
    response
}
