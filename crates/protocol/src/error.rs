//! Errors of the gateway, in the forms that clients of each protocol understand.
//!
//! Errors of a replica are passed on as they are; these are for the gateway's own. Codes are
//! stable: clients and dashboards may match on them.

use std::time::Duration;

use bytes::Bytes;
use http::{HeaderName, StatusCode};
use serde::Serialize;
use thiserror::Error;

use crate::Protocol;
use crate::echo::bounded;

/// Header with [`ErrorKind::code`], which tells the gateway's errors from a replica's, in any form
/// of body.
pub static CODE_HEADER: HeaderName = HeaderName::from_static("x-spillway-code");

/// Header with the reason why a request was shed, [`GatewayError::shed`]. The code is the kind of
/// error; the reason tells operators what to do about it.
pub static SHED_REASON: HeaderName = HeaderName::from_static("x-spillway-shed-reason");

/// Default Retry-After under load: long enough to spread clients that would all return at once,
/// short against any generation.
pub const RETRY_DELAY: Duration = Duration::from_secs(1);
/// Largest Retry-After: predictions for a later time are worth nothing, and clients should find
/// capacity that comes back.
pub const RETRY_DELAY_MAX: Duration = Duration::from_secs(60);
/// Largest Retry-After for a client that has used up its rate limit and is in debt.
const LIMIT_DELAY_MAX: Duration = Duration::from_secs(24 * 3_600);

/// Reason why the gateway itself answers a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ErrorKind {
    /// The request cannot be parsed, or asks for something that does not exist.
    BadRequest,
    /// The request has no key, but one is needed.
    KeyMissing,
    /// The key of the request is not valid.
    KeyInvalid,
    /// The key is valid, but not for this model.
    ModelNotAllowed,
    /// The key is valid, but not for any region that could serve the request.
    RegionNotAllowed,
    /// No route serves the model.
    ModelNotFound,
    /// The path is no endpoint and matches no route.
    RouteNotFound,
    /// No replica is known to hold the stored response.
    ResponseNotFound,
    /// The path is known, but not with this method.
    MethodNotAllowed,
    /// The body did not arrive in time.
    BodyTimeout,
    /// The body is larger than the limit.
    BodyTooLarge,
    /// The endpoint does not read this content type.
    UnsupportedMediaType,
    /// The headers are larger than the limit.
    HeadersTooLarge,
    /// The request asks for a part of HTTP that is not served, like an upgrade to another protocol.
    NotImplemented,
    /// The client disconnected first; only logs and metrics show this error.
    ClientClosed,
    /// The gateway has a bug.
    Internal,
    /// The gateway could not connect to the replica.
    ReplicaConnect,
    /// The replica closed the connection before its answer began.
    ReplicaReset,
    /// The replica went down while the gateway waited for its answer.
    ReplicaDown,
    /// The replica's answer is no valid HTTP.
    ReplicaBadResponse,
    /// The replica's answer redirects to another server.
    ReplicaRedirect,
    /// The replica's answer broke off.
    StreamCut,
    /// The request was shed: an answer would be too late, or would harm requests already being
    /// served.
    Overloaded,
    /// The client has used up its rate limit; other clients are still served.
    RateLimited,
    /// The request alone exceeds the whole rate limit: it can never be served.
    BeyondLimit,
    /// No replica of the model is fit to serve.
    NoReplica,
    /// The replica did not begin to answer in time.
    FirstByteTimeout,
    /// The replica stopped in the middle of its answer.
    StreamStalled,
    /// The request's own deadline passed.
    DeadlineExceeded,
}

/// Error with everything that the client should know about it.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{message}")]
pub struct GatewayError {
    /// Kind of the error; decides on status and code.
    pub kind: ErrorKind,
    /// Full sentence for the person who reads the client's log. Never contains a part of the
    /// prompt.
    pub message: String,
    /// Field of the request that is wrong.
    pub param: Option<&'static str>,
    /// Time after which a retry is worthwhile; `None` if unknown, but see
    /// [`GatewayError::retry_delay`].
    pub retry_after: Option<Duration>,
    /// Reason why the request was shed, for people and dashboards, from a fixed list. `None` if it
    /// was refused for another reason.
    pub shed: Option<&'static str>,
}

/// Form of an error inside a stream of events that has already begun.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EventFlavour {
    /// Chat and completions: a data event with an `error` object, as engines send it.
    OpenAi,
    /// Other streams of OpenAI's API, e.g. of images and speech: a named `error` event with that
    /// object, since their clients look at names.
    OpenAiNamed,
    /// Anthropic API: a named `error` event with an object of its own.
    Anthropic,
    /// Responses API: a named `error` event.
    Responses {
        /// Number of the event: one more than that of the last event sent.
        sequence_number: u64,
    },
    /// Triton's `generate_stream`: a data event with an `error` string.
    KServeV2,
    /// Other streams: a named `error` event.
    Raw,
}

impl ErrorKind {
    /// All kinds, for tests and documents that must not miss one.
    pub const ALL: &[Self] = &[
        Self::BadRequest,
        Self::KeyMissing,
        Self::KeyInvalid,
        Self::ModelNotAllowed,
        Self::RegionNotAllowed,
        Self::ModelNotFound,
        Self::RouteNotFound,
        Self::ResponseNotFound,
        Self::MethodNotAllowed,
        Self::BodyTimeout,
        Self::BodyTooLarge,
        Self::UnsupportedMediaType,
        Self::HeadersTooLarge,
        Self::NotImplemented,
        Self::ClientClosed,
        Self::Internal,
        Self::ReplicaConnect,
        Self::ReplicaReset,
        Self::ReplicaDown,
        Self::ReplicaBadResponse,
        Self::ReplicaRedirect,
        Self::StreamCut,
        Self::Overloaded,
        Self::RateLimited,
        Self::BeyondLimit,
        Self::NoReplica,
        Self::FirstByteTimeout,
        Self::StreamStalled,
        Self::DeadlineExceeded,
    ];

    /// Returns the HTTP status, for an answer that has not begun.
    #[must_use]
    pub fn status(self) -> StatusCode {
        match self {
            Self::BadRequest | Self::BeyondLimit => StatusCode::BAD_REQUEST,
            Self::KeyMissing | Self::KeyInvalid => StatusCode::UNAUTHORIZED,
            Self::ModelNotAllowed | Self::RegionNotAllowed => StatusCode::FORBIDDEN,
            Self::ModelNotFound | Self::RouteNotFound | Self::ResponseNotFound => {
                StatusCode::NOT_FOUND
            }
            Self::MethodNotAllowed => StatusCode::METHOD_NOT_ALLOWED,
            Self::BodyTimeout => StatusCode::REQUEST_TIMEOUT,
            Self::BodyTooLarge => StatusCode::PAYLOAD_TOO_LARGE,
            Self::UnsupportedMediaType => StatusCode::UNSUPPORTED_MEDIA_TYPE,
            Self::HeadersTooLarge => StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE,
            Self::NotImplemented => StatusCode::NOT_IMPLEMENTED,
            Self::ClientClosed => client_closed_status(),
            Self::Internal => StatusCode::INTERNAL_SERVER_ERROR,
            Self::ReplicaConnect
            | Self::ReplicaReset
            | Self::ReplicaDown
            | Self::ReplicaBadResponse
            | Self::ReplicaRedirect
            | Self::StreamCut => StatusCode::BAD_GATEWAY,
            Self::RateLimited => StatusCode::TOO_MANY_REQUESTS,
            // Not 429, since the client did nothing wrong, and load balancers understand 503.
            Self::Overloaded | Self::NoReplica => StatusCode::SERVICE_UNAVAILABLE,
            Self::FirstByteTimeout | Self::StreamStalled | Self::DeadlineExceeded => {
                StatusCode::GATEWAY_TIMEOUT
            }
        }
    }

    /// Returns the stable machine-readable name.
    #[must_use]
    pub fn code(self) -> &'static str {
        match self {
            Self::BadRequest => "bad_request",
            Self::KeyMissing => "missing_api_key",
            Self::KeyInvalid => "invalid_api_key",
            Self::ModelNotAllowed => "model_not_allowed",
            Self::RegionNotAllowed => "region_not_allowed",
            Self::ModelNotFound => "model_not_found",
            Self::RouteNotFound => "route_not_found",
            Self::ResponseNotFound => "response_not_found",
            Self::MethodNotAllowed => "method_not_allowed",
            Self::BodyTimeout => "body_timeout",
            Self::BodyTooLarge => "body_too_large",
            Self::UnsupportedMediaType => "unsupported_media_type",
            Self::HeadersTooLarge => "headers_too_large",
            Self::NotImplemented => "not_implemented",
            Self::ClientClosed => "client_closed",
            Self::Internal => "internal",
            Self::ReplicaConnect => "replica_connect",
            Self::ReplicaReset => "replica_reset",
            Self::ReplicaDown => "replica_down",
            Self::ReplicaBadResponse => "replica_bad_response",
            Self::ReplicaRedirect => "replica_redirect",
            Self::StreamCut => "stream_cut",
            Self::Overloaded => "overloaded",
            Self::RateLimited => "rate_limited",
            Self::BeyondLimit => "request_exceeds_limit",
            Self::NoReplica => "no_replica",
            Self::FirstByteTimeout => "first_byte_timeout",
            Self::StreamStalled => "stream_stalled",
            Self::DeadlineExceeded => "deadline_exceeded",
        }
    }

    /// Returns the `type` of an Anthropic error object, by which clients choose their exception.
    #[must_use]
    pub fn anthropic_type(self) -> &'static str {
        match self.status() {
            StatusCode::UNAUTHORIZED => "authentication_error",
            StatusCode::FORBIDDEN => "permission_error",
            StatusCode::NOT_FOUND => "not_found_error",
            StatusCode::PAYLOAD_TOO_LARGE => "request_too_large",
            StatusCode::TOO_MANY_REQUESTS => "rate_limit_error",
            StatusCode::SERVICE_UNAVAILABLE => "overloaded_error",
            StatusCode::GATEWAY_TIMEOUT => "timeout_error",
            status if status.is_client_error() => "invalid_request_error",
            _ => "api_error",
        }
    }

    /// Returns the `type` of an OpenAI error object, which tells if client or server is to blame.
    #[must_use]
    pub fn openai_type(self) -> &'static str {
        match self {
            Self::Overloaded => "overloaded_error",
            Self::RateLimited => "rate_limit_error",
            _ if self.status().is_client_error() => "invalid_request_error",
            _ => "server_error",
        }
    }
}

impl GatewayError {
    /// Creates an error without a field. A message of more than 4 KiB is cut.
    #[must_use]
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        let message = bounded(message.into());
        Self { kind, message, param: None, retry_after: None, shed: None }
    }

    /// Returns the error with the wrong field of the request.
    #[must_use]
    pub fn with_param(self, param: &'static str) -> Self {
        Self { param: Some(param), ..self }
    }

    /// Returns the error with a Retry-After.
    #[must_use]
    pub fn with_retry_after(self, delay: Duration) -> Self {
        Self { retry_after: Some(delay), ..self }
    }

    /// Returns the error with the reason why the request was shed.
    #[must_use]
    pub fn with_shed(self, reason: &'static str) -> Self {
        Self { shed: Some(reason), ..self }
    }

    /// Returns the Retry-After for the client; `None` if the error has none.
    ///
    /// An error for load, for a rate limit or for lack of replicas has [`RETRY_DELAY`] by default,
    /// which is also the minimum. The maximum is [`RETRY_DELAY_MAX`], and a day for rate limits.
    #[must_use]
    pub fn retry_delay(&self) -> Option<Duration> {
        let status = self.kind.status();
        let is_shed =
            [StatusCode::SERVICE_UNAVAILABLE, StatusCode::TOO_MANY_REQUESTS].contains(&status);
        // The time until a rate limit has room is known; the time until a replica has room is
        // predicted.
        let longest = match self.kind {
            ErrorKind::RateLimited => LIMIT_DELAY_MAX,
            _ => RETRY_DELAY_MAX,
        };
        // A known delay wins; otherwise only errors of load, limits and missing replicas have one.
        let known = self.retry_after.map(|delay| delay.clamp(RETRY_DELAY, longest));
        known.or_else(|| is_shed.then_some(RETRY_DELAY))
    }

    /// Returns the JSON body for an answer that has not begun; empty in gRPC, which uses trailers.
    #[must_use]
    pub fn body(&self, protocol: Protocol) -> Bytes {
        match protocol {
            Protocol::OpenAi => json(&OpenAiBody { error: self.openai() }),
            Protocol::Anthropic => json(&self.anthropic()),
            Protocol::KServeV2 => json(&self.v2()),
            Protocol::Grpc => Bytes::new(),
            Protocol::Raw => json(&RawBody { error: self.raw() }),
        }
    }

    /// Returns one complete event, for an answer that has begun. May only be sent between two
    /// events.
    #[must_use]
    pub fn event(&self, flavour: EventFlavour) -> Bytes {
        match flavour {
            EventFlavour::OpenAi => frame("", &OpenAiBody { error: self.openai() }),
            EventFlavour::OpenAiNamed => {
                frame("event: error\n", &OpenAiBody { error: self.openai() })
            }
            EventFlavour::Anthropic => frame("event: error\n", &self.anthropic()),
            EventFlavour::Responses { sequence_number } => {
                frame("event: error\n", &self.responses(sequence_number))
            }
            EventFlavour::KServeV2 => frame("", &self.v2()),
            EventFlavour::Raw => frame("event: error\n", &RawBody { error: self.raw() }),
        }
    }

    fn openai(&self) -> OpenAiError<'_> {
        OpenAiError {
            message: &self.message,
            r#type: self.kind.openai_type(),
            param: self.param,
            code: self.kind.code(),
        }
    }

    fn anthropic(&self) -> AnthropicBody<'_> {
        let error = AnthropicError {
            r#type: self.kind.anthropic_type(),
            message: &self.message,
            code: self.kind.code(),
        };
        AnthropicBody { r#type: "error", error }
    }

    fn responses(&self, sequence_number: u64) -> ResponsesError<'_> {
        ResponsesError {
            r#type: "error",
            code: self.kind.code(),
            message: &self.message,
            param: self.param,
            sequence_number,
        }
    }

    fn v2(&self) -> V2Body<'_> {
        V2Body { error: &self.message, code: self.kind.code() }
    }

    fn raw(&self) -> RawError<'_> {
        RawError { code: self.kind.code(), message: &self.message }
    }
}

#[derive(Serialize)]
struct OpenAiBody<'e> {
    error: OpenAiError<'e>,
}

#[derive(Serialize)]
struct OpenAiError<'e> {
    message: &'e str,
    r#type: &'static str,
    param: Option<&'static str>,
    code: &'static str,
}

#[derive(Serialize)]
struct AnthropicBody<'e> {
    r#type: &'static str,
    error: AnthropicError<'e>,
}

#[derive(Serialize)]
struct AnthropicError<'e> {
    r#type: &'static str,
    message: &'e str,
    code: &'static str,
}

#[derive(Serialize)]
struct ResponsesError<'e> {
    r#type: &'static str,
    code: &'static str,
    message: &'e str,
    param: Option<&'static str>,
    sequence_number: u64,
}

#[derive(Serialize)]
struct V2Body<'e> {
    error: &'e str,
    code: &'static str,
}

#[derive(Serialize)]
struct RawBody<'e> {
    error: RawError<'e>,
}

#[derive(Serialize)]
struct RawError<'e> {
    code: &'static str,
    message: &'e str,
}

/// Returns 499, which is not registered, but is the name of nginx and most dashboards for this
/// case.
#[expect(clippy::expect_used, reason = "499 is within 100..=999")]
fn client_closed_status() -> StatusCode {
    StatusCode::from_u16(499).expect("499 is a valid status code")
}

#[expect(clippy::expect_used, reason = "structs of strings and numbers always serialise")]
fn json(value: &impl Serialize) -> Bytes {
    serde_json::to_vec(value).expect("strings and numbers serialise").into()
}

/// Returns an event. JSON text has no raw line break, so it fits on one `data` line.
fn frame(head: &str, value: &impl Serialize) -> Bytes {
    [head.as_bytes(), b"data: ", &json(value), b"\n\n"].concat().into()
}

#[cfg(test)]
mod error_test;
