//! Files that are part of the program: those of the console and of the docs.
//!
//! They hold nothing secret and are the same for all, so they need no token.

use std::io::Read;

use bytes::Bytes;
use flate2::read::GzDecoder;
use http::header::{self, HeaderName};
use http::request::Parts;
use http::{HeaderMap, HeaderValue, Method, StatusCode};
use http_body_util::{BodyExt, Full};
use spillway_cluster_state::key_hash;

use crate::error::ApiError;
use crate::reply::{Reply, reply};

pub(crate) const HTML: &str = "text/html; charset=utf-8";
pub(crate) const CSS: &str = "text/css; charset=utf-8";
pub(crate) const SCRIPT: &str = "text/javascript; charset=utf-8";
pub(crate) const SVG: &str = "image/svg+xml";

/// Headers of every file; its policy comes beside them.
const HEADERS: [(HeaderName, &str); 5] = [
    // Asked for again each time, which costs a 304: a page never has parts of two versions.
    (header::CACHE_CONTROL, "no-cache"),
    (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (header::X_FRAME_OPTIONS, "DENY"),
    (header::REFERRER_POLICY, "no-referrer"),
    (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
];

/// A file that is part of the program.
pub(crate) struct StaticFile {
    /// Name below its folder; empty for the page that the folder itself leads to.
    pub(crate) name: &'static str,
    content_type: &'static str,
    pub(crate) content: &'static [u8],
    /// True if the content is compressed by gzip.
    is_packed: bool,
    /// Entity tag, by the content.
    tag: HeaderValue,
}

impl StaticFile {
    /// Makes a file from its content as it is.
    pub(crate) fn plain(
        name: &'static str,
        content_type: &'static str,
        content: &'static [u8],
    ) -> Self {
        Self { name, content_type, content, is_packed: false, tag: tag("", content) }
    }

    /// Makes a file from content that is compressed by gzip.
    pub(crate) fn packed(
        name: &'static str,
        content_type: &'static str,
        content: &'static [u8],
    ) -> Self {
        // Weak, because a client gets the content compressed or not.
        Self { name, content_type, content, is_packed: true, tag: tag("W/", content) }
    }

    /// Answers a request for the file, whose rights as a page are `policy`.
    pub(crate) fn reply(&self, head: &Parts, policy: &'static str) -> Reply {
        let is_known = is_known(&head.headers, &self.tag);
        let status = if is_known { StatusCode::NOT_MODIFIED } else { StatusCode::OK };
        let has_body = !is_known && head.method == Method::GET;
        let as_packed = self.is_packed && takes_gzip(&head.headers);
        let content = match () {
            () if !has_body => Bytes::new(),
            () if self.is_packed && !as_packed => unpacked(self.content),
            () => Bytes::from_static(self.content),
        };
        let body = Full::new(content).map_err(|never| match never {});
        let mut reply = reply(status, self.content_type, body.boxed_unsync());
        let headers = reply.headers_mut();
        headers.insert(header::ETAG, self.tag.clone());
        headers.insert(header::CONTENT_SECURITY_POLICY, HeaderValue::from_static(policy));
        for (name, value) in HEADERS {
            headers.insert(name, HeaderValue::from_static(value));
        }
        if self.is_packed {
            headers.insert(header::VARY, HeaderValue::from_static("Accept-Encoding"));
        }
        if as_packed {
            headers.insert(header::CONTENT_ENCODING, HeaderValue::from_static("gzip"));
        }
        reply
    }
}

/// Checks that a request for a file only reads.
pub(crate) fn check_reads(head: &Parts, whose: &str) -> Result<(), ApiError> {
    if matches!(head.method, Method::GET | Method::HEAD) {
        return Ok(());
    }
    let cause = format!("files of {whose} are only read");
    Err(ApiError::new(StatusCode::METHOD_NOT_ALLOWED, "method_not_allowed", cause, "use GET"))
}

/// Redirects to another address, relative to that of the request, so that it works behind a proxy's
/// prefix.
pub(crate) fn redirect(to: &str) -> Reply {
    let body = Full::new(Bytes::new()).map_err(|never| match never {});
    let mut reply = reply(StatusCode::PERMANENT_REDIRECT, HTML, body.boxed_unsync());
    if let Ok(to) = HeaderValue::from_str(to) {
        reply.headers_mut().insert(header::LOCATION, to);
    }
    reply
}

fn tag(mark: &str, content: &[u8]) -> HeaderValue {
    let hash = hex::encode(&key_hash(&[], content).reveal()[..16]);
    // Hexadecimal digits are always a valid header.
    let tag = HeaderValue::from_str(&format!("{mark}\"{hash}\""));
    tag.unwrap_or(HeaderValue::from_static("\"\""))
}

/// Returns true if the client has the file with this tag.
fn is_known(headers: &HeaderMap, tag: &HeaderValue) -> bool {
    // The comparison is weak: a proxy that compresses marks the tag so.
    let strong = |tag: &str| tag.trim().trim_start_matches("W/").to_owned();
    let own = tag.to_str().map(strong).unwrap_or_default();
    let lists = headers.get_all(header::IF_NONE_MATCH).iter();
    let mut tags = lists.filter_map(|list| list.to_str().ok()).flat_map(|list| list.split(','));
    tags.any(|known| strong(known) == own)
}

/// Returns true if the client reads gzip.
fn takes_gzip(headers: &HeaderMap) -> bool {
    let lists = headers.get_all(header::ACCEPT_ENCODING).iter();
    let mut codings = lists.filter_map(|list| list.to_str().ok()).flat_map(|list| list.split(','));
    codings.any(|coding| {
        let (name, weight) = coding.split_once(';').unwrap_or((coding, ""));
        let weight = weight.trim().strip_prefix("q=").map(|it| it.trim().parse::<f32>());
        let is_refused = matches!(weight, Some(Ok(weight)) if weight <= 0.0);
        matches!(name.trim(), "gzip" | "x-gzip" | "*") && !is_refused
    })
}

fn unpacked(content: &[u8]) -> Bytes {
    let mut text = Vec::new();
    match GzDecoder::new(content).read_to_end(&mut text) {
        Ok(_) => text.into(),
        // Cannot happen: the build has compressed it.
        Err(_) => Bytes::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_that_refuses_gzip_gets_none() {
        for (accepted, expected) in [
            ("gzip, br", true),
            ("br;q=1.0, gzip;q=0.5", true),
            ("*", true),
            ("gzip;q=0", false),
            ("br", false),
            ("", false),
        ] {
            let headers =
                HeaderMap::from_iter([(header::ACCEPT_ENCODING, accepted.parse().unwrap())]);
            assert_eq!(takes_gzip(&headers), expected, "{accepted}");
        }
    }
}
