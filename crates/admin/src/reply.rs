//! Answers as hyper sends them.

use std::io;

use bytes::Bytes;
use http::{HeaderValue, Response, StatusCode, header};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full};
use serde::Serialize;

/// The body of an answer. One that can't be finished breaks off with an error.
pub type Body = UnsyncBoxBody<Bytes, io::Error>;
/// An answer.
pub type Reply = Response<Body>;

pub(crate) fn json(status: StatusCode, value: &impl Serialize) -> Reply {
    // What is shown are plain structs, which always have a JSON form.
    let text = serde_json::to_vec(value).unwrap_or_default();
    reply(status, "application/json", whole(text.into()))
}

pub(crate) fn reply(status: StatusCode, content_type: &'static str, body: Body) -> Reply {
    let mut response = Response::new(body);
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(content_type));
    // What is shown here changes at any time, and some of it is secret.
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

fn whole(bytes: Bytes) -> Body {
    Full::new(bytes).map_err(|never| match never {}).boxed_unsync()
}
