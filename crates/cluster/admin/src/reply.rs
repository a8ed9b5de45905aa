//! Answers in the form that hyper sends.

use std::io;

use bytes::Bytes;
use http::{HeaderValue, Response, StatusCode, header};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full};
use serde::Serialize;

/// Body of an answer. A body that can't be completed breaks off with an error.
pub type Body = UnsyncBoxBody<Bytes, io::Error>;
/// An answer.
pub type Reply = Response<Body>;

pub(crate) fn json(status: StatusCode, value: &impl Serialize) -> Reply {
    // Cannot fail: only plain structs are shown.
    let text = serde_json::to_vec(value).unwrap_or_default();
    reply(status, "application/json", whole(text.into()))
}

pub(crate) fn reply(status: StatusCode, content_type: &'static str, body: Body) -> Reply {
    let mut response = Response::new(body);
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(content_type));
    // The state changes at any time, and some answers are secret.
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

fn whole(bytes: Bytes) -> Body {
    Full::new(bytes).map_err(|never| match never {}).boxed_unsync()
}
