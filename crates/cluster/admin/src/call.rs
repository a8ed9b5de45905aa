//! Request of the admin API, parsed once: compare-and-set (`If-Match`), idempotency key, body.

use bytes::Bytes;
use http::request::Parts;
use http::{HeaderMap, HeaderName, StatusCode, header};
use http_body_util::{BodyExt, LengthLimitError, Limited};
use hyper::body::Incoming;
use percent_encoding::percent_decode_str;
use serde::de::DeserializeOwned;
use spillway_cluster_state::{Expect, RequestId, key_hash};

use crate::access::Caller;
use crate::config::AdminConfig;
use crate::endpoint::{AdminEndpoint, Operation};
use crate::error::ApiError;
use crate::query::Query;

/// Most bytes of a request's body, as many as an entry of the log has.
const BODY_BYTES_MAX: usize = 64 << 10;
/// Most bytes of a request to explain: a prompt of a million tokens.
const EXPLAIN_BYTES_MAX: usize = 4 << 20;
/// Most bytes of an `Idempotency-Key`: a UUID has 36.
const IDEMPOTENCY_BYTES_MAX: usize = 256;
const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");

/// A parsed request.
#[derive(Clone, Debug)]
pub(crate) struct AdminCall {
    pub(crate) endpoint: &'static AdminEndpoint,
    pub(crate) caller: Caller,
    /// Values of the `{names}` in the endpoint's path.
    pub(crate) path: Vec<String>,
    pub(crate) query: Query,
    pub(crate) expect: Expect,
    /// Id of the request, from the client's `Idempotency-Key`; `None` without one.
    pub(crate) request: Option<RequestId>,
    pub(crate) last_event: Option<String>,
    pub(crate) body: Bytes,
}

/// Returns the decoded segments of a path below `/`.
pub(crate) fn segments(path: &str) -> Result<Vec<String>, ApiError> {
    let decode = |part: &str| percent_decode_str(part).decode_utf8().map(String::from);
    let parts: Result<_, _> = path.split('/').skip(1).map(decode).collect();
    parts.map_err(|_| ApiError::bad_request("the path is badly encoded", "encode it as UTF-8"))
}

impl AdminCall {
    /// Parses query, headers and body.
    pub(crate) async fn read(
        endpoint: &'static AdminEndpoint,
        path: Vec<String>,
        caller: Caller,
        (head, body): (Parts, Incoming),
        config: &AdminConfig,
    ) -> Result<Self, ApiError> {
        // Parsed before the body is read, so that a wrong request costs no memory.
        let query = Query::parse(head.uri.query(), endpoint.query)?;
        let expect = expectation(&head.headers)?;
        let request = idempotency(&head.headers, &caller)?;
        let last_event = text(&head.headers, &HeaderName::from_static("last-event-id"))?;
        let bytes_max = match endpoint.operation {
            Operation::Explain => EXPLAIN_BYTES_MAX,
            _ => BODY_BYTES_MAX,
        };
        let body = tokio::time::timeout(config.body_limit, bytes(body, bytes_max)).await;
        let late = |_| {
            let remedy = "send it at once";
            let cause = "the body did not arrive in time";
            ApiError::new(StatusCode::REQUEST_TIMEOUT, "body_too_slow", cause, remedy)
        };
        let body = body.map_err(late)??;
        Ok(Self { endpoint, caller, path, query, expect, request, last_event, body })
    }

    /// Parses the body as JSON.
    pub(crate) fn json<T: DeserializeOwned>(&self) -> Result<T, ApiError> {
        let schema = "send JSON as /v1/openapi.json describes it";
        serde_json::from_slice(&self.body).map_err(|error| {
            ApiError::bad_request(format!("the body can't be read: {error}"), schema)
        })
    }

    /// Parses the body as JSON; an empty body means `{}`.
    pub(crate) fn json_or_default<T: DeserializeOwned + Default>(&self) -> Result<T, ApiError> {
        if self.body.is_empty() { Ok(T::default()) } else { self.json() }
    }
}

async fn bytes(body: Incoming, bytes_max: usize) -> Result<Bytes, ApiError> {
    match Limited::new(body, bytes_max).collect().await {
        Ok(collected) => Ok(collected.to_bytes()),
        Err(error) if error.is::<LengthLimitError>() => Err(ApiError::new(
            StatusCode::PAYLOAD_TOO_LARGE,
            "too_large",
            format!("the body has more than {bytes_max} bytes"),
            "name fewer models or regions, or a shorter prompt",
        )),
        Err(error) => Err(ApiError::bad_request(format!("the body broke off: {error}"), "again")),
    }
}

/// Returns the condition of a write: `If-Match: "7"` for a version, `If-None-Match: *` for a record
/// that must not exist.
fn expectation(headers: &HeaderMap) -> Result<Expect, ApiError> {
    let matching = text(headers, &header::IF_MATCH)?;
    let none_matching = text(headers, &header::IF_NONE_MATCH)?;
    match (matching.as_deref(), none_matching.as_deref()) {
        (None, None) => Ok(Expect::Any),
        (None, Some("*")) => Ok(Expect::Absent),
        (Some(tag), None) => {
            // The quotes of the tag may be left out.
            let number = tag.strip_prefix('"').and_then(|tag| tag.strip_suffix('"')).unwrap_or(tag);
            let wrong = |_| {
                let remedy = "send the record's version in quotes, as its ETag has it";
                ApiError::bad_request("If-Match is no version", remedy)
            };
            number.parse().map(Expect::Version).map_err(wrong)
        }
        _ => Err(ApiError::bad_request(
            "the condition can't be read",
            "send either If-Match with a version or If-None-Match: *",
        )),
    }
}

/// Returns the request id. The caller's name is part of it, so that no caller repeats a request of
/// another one.
fn idempotency(headers: &HeaderMap, caller: &Caller) -> Result<Option<RequestId>, ApiError> {
    let Some(key) = text(headers, &IDEMPOTENCY_KEY)? else { return Ok(None) };
    if key.is_empty() || key.len() > IDEMPOTENCY_BYTES_MAX {
        let remedy = format!("use 1 to {IDEMPOTENCY_BYTES_MAX} bytes, e.g. a UUID");
        return Err(ApiError::bad_request("the Idempotency-Key can't be used", remedy));
    }
    // Names of callers have no zero byte, so no two pairs have equal bytes.
    let hash = key_hash(format!("{}\0", caller.name).as_bytes(), key.as_bytes());
    let mut id = [0; 16];
    id.copy_from_slice(&hash.reveal()[..16]);
    Ok(Some(RequestId::keyed(id)))
}

/// Returns the value of a header that may occur once; `None` if it is missing.
fn text(headers: &HeaderMap, name: &HeaderName) -> Result<Option<String>, ApiError> {
    let mut values = headers.get_all(name).iter();
    let Some(value) = values.next() else { return Ok(None) };
    // A header that occurs twice is ambiguous.
    let value = value.to_str().ok().filter(|_| values.next().is_none());
    let wrong = || {
        let cause = format!("the header {name} can't be read");
        ApiError::bad_request(cause, "send it once, in ASCII")
    };
    value.map(|value| Some(value.trim().to_owned())).ok_or_else(wrong)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(pairs: &[(&'static str, &'static str)]) -> HeaderMap {
        pairs
            .iter()
            .map(|(name, value)| (HeaderName::from_static(name), value.parse().unwrap()))
            .collect()
    }

    #[test]
    fn conditions_are_versions_or_absence() {
        let read = |pairs: &[_]| expectation(&headers(pairs)).ok();
        assert_eq!(read(&[]), Some(Expect::Any));
        assert_eq!(read(&[("if-match", "\"7\"")]), Some(Expect::Version(7)));
        assert_eq!(read(&[("if-match", "7")]), Some(Expect::Version(7)));
        assert_eq!(read(&[("if-none-match", "*")]), Some(Expect::Absent));
        for wrong in [
            &[("if-match", "*")][..],
            &[("if-match", "W/\"7\"")],
            &[("if-match", "\"x\"")],
            &[("if-none-match", "\"7\"")],
            &[("if-match", "\"7\""), ("if-none-match", "*")],
        ] {
            assert_eq!(read(wrong), None, "{wrong:?}");
        }
    }

    #[test]
    fn each_caller_has_request_names_of_its_own() {
        let caller = |name: &str| Caller { name: name.to_owned(), role: crate::AdminRole::Admin };
        let id = |name, key| {
            idempotency(&headers(&[("idempotency-key", key)]), &caller(name)).unwrap().unwrap()
        };
        assert_eq!(id("ada", "1"), id("ada", "1"));
        assert_ne!(id("ada", "1"), id("ada", "2"));
        assert_ne!(id("ada", "1"), id("bob", "1"));
        let empty = headers(&[("idempotency-key", "")]);
        assert!(idempotency(&empty, &caller("ada")).is_err());
    }

    #[test]
    fn paths_are_decoded_after_they_are_divided() {
        let parts = segments("/v1/models/meta%2Fllama%203").unwrap();
        assert_eq!(parts, ["v1", "models", "meta/llama 3"]);
        assert!(segments("/v1/%FF").is_err());
    }
}
