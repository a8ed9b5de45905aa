//! The gateway's own errors, in the words that each protocol's clients understand.
//!
//! A replica's errors are passed on as they are; these are only for what the gateway itself has
//! to say. Codes are stable: clients and dashboards may match on them.

use std::time::Duration;

use bytes::Bytes;
use http::{HeaderName, StatusCode};
use serde::Serialize;
use thiserror::Error;

use crate::Protocol;
use crate::echo::bounded;

/// Header that carries [`ErrorKind::code`], so that the gateway's errors can be told from a
/// replica's whatever the body looks like.
pub static CODE_HEADER: HeaderName = HeaderName::from_static("x-spillway-code");

/// Header that says why a request was shed, [`GatewayError::shed`]: the codes say what kind of
/// error it is, this what to do about it.
pub static SHED_REASON: HeaderName = HeaderName::from_static("x-spillway-shed-reason");

/// The wait that is asked for under load, where nothing better is known: long enough to thin out
/// clients that would all come back at once, short against any generation.
pub const RETRY_DELAY: Duration = Duration::from_secs(1);
/// The longest wait that is asked for: what is predicted for later is worth nothing, and capacity
/// that comes back should be found.
pub const RETRY_DELAY_MAX: Duration = Duration::from_secs(60);
/// The longest wait that is told to a client that has used up a limit and is in debt.
const LIMIT_DELAY_MAX: Duration = Duration::from_secs(24 * 3_600);

/// Why the gateway answers itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ErrorKind {
    /// The request can't be read, or asks for something that doesn't exist.
    BadRequest,
    /// A key is needed, and the request has none.
    KeyMissing,
    /// The request's key lets nobody in.
    KeyInvalid,
    /// The key is good, but not for this model.
    ModelNotAllowed,
    /// The key is good, but not for any region that could serve the request.
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
    /// The content type is not one that the endpoint reads.
    UnsupportedMediaType,
    /// The headers are larger than the limit.
    HeadersTooLarge,
    /// The request asks for a part of HTTP that is not served, like another protocol on its connection.
    NotImplemented,
    /// The client went away first; only logs and metrics ever show it.
    ClientClosed,
    /// A defect of the gateway.
    Internal,
    /// No connection to the replica could be made.
    ReplicaConnect,
    /// The replica closed the connection before its answer began.
    ReplicaReset,
    /// The replica went down while its answer was waited for.
    ReplicaDown,
    /// What the replica sent is no HTTP answer.
    ReplicaBadResponse,
    /// The replica's answer leads to another server.
    ReplicaRedirect,
    /// The replica's answer broke off.
    StreamCut,
    /// Shed: serving it would be too late or would harm those already served.
    Overloaded,
    /// The client has used up what it may ask for; others are served on.
    RateLimited,
    /// The request alone may use more than the whole limit: it can never be served.
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

/// An error with what the client should know about it.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{message}")]
pub struct GatewayError {
    /// What went wrong; decides status and code.
    pub kind: ErrorKind,
    /// A full sentence for the person who reads the client's log. Never a part of the prompt.
    pub message: String,
    /// The request's field that is to blame.
    pub param: Option<&'static str>,
    /// When it is worth trying again; `None` says nothing about it, but see
    /// [`GatewayError::retry_delay`].
    pub retry_after: Option<Duration>,
    /// Why the request was shed, for people and dashboards; one of a fixed list. `None` if it was
    /// refused for another reason.
    pub shed: Option<&'static str>,
}

/// What an error looks like inside a stream of events that has already begun.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EventFlavour {
    /// Chat and completions: a data event with an `error` object, as engines send it.
    OpenAi,
    /// Other streams of OpenAI's API, e.g. of images and speech: the same object in a named `error` event,
    /// since their clients look at names.
    OpenAiNamed,
    /// The Anthropic API: a named `error` event with its own object.
    Anthropic,
    /// The Responses API: a named `error` event.
    Responses {
        /// The number after that of the last event sent.
        sequence_number: u64,
    },
    /// Triton's `generate_stream`: a data event with an `error` string.
    KServeV2,
    /// Any other stream: a named `error` event.
    Raw,
}

impl ErrorKind {
    /// Every kind, for tests and documents that must not miss one.
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

    /// The HTTP status, as far as the answer has not begun yet.
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
            // Not 429: the client did nothing wrong, and 503 is what load balancers understand.
            Self::Overloaded | Self::NoReplica => StatusCode::SERVICE_UNAVAILABLE,
            Self::FirstByteTimeout | Self::StreamStalled | Self::DeadlineExceeded => {
                StatusCode::GATEWAY_TIMEOUT
            }
        }
    }

    /// The stable machine-readable name.
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

    /// The `type` of an Anthropic error object, by which its clients choose their exception.
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

    /// The `type` of an OpenAI error object, which names whose fault it was.
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
    /// An error that blames no field. A message of more than 4 KiB is cut.
    #[must_use]
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        let message = bounded(message.into());
        Self { kind, message, param: None, retry_after: None, shed: None }
    }

    /// The same error, blaming a field of the request.
    #[must_use]
    pub fn with_param(self, param: &'static str) -> Self {
        Self { param: Some(param), ..self }
    }

    /// The same error, telling the client when to come again.
    #[must_use]
    pub fn with_retry_after(self, delay: Duration) -> Self {
        Self { retry_after: Some(delay), ..self }
    }

    /// The same error, saying why the request was shed.
    #[must_use]
    pub fn with_shed(self, reason: &'static str) -> Self {
        Self { shed: Some(reason), ..self }
    }

    /// How long the client is asked to wait, if it is: who is turned away for load, for a limit or for
    /// want of replicas and not told otherwise waits for [`RETRY_DELAY`], which is also the least.
    /// Never more than [`RETRY_DELAY_MAX`].
    #[must_use]
    pub fn retry_delay(&self) -> Option<Duration> {
        let status = self.kind.status();
        let is_shed =
            [StatusCode::SERVICE_UNAVAILABLE, StatusCode::TOO_MANY_REQUESTS].contains(&status);
        // When a limit has room is known; when a place is free is predicted.
        let longest = match self.kind {
            ErrorKind::RateLimited => LIMIT_DELAY_MAX,
            _ => RETRY_DELAY_MAX,
        };
        let known = self.retry_after.map(|delay| delay.clamp(RETRY_DELAY, longest));
        known.or_else(|| is_shed.then_some(RETRY_DELAY))
    }

    /// The JSON body for an answer that has not begun; empty in gRPC, where trailers say it all.
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

    /// One whole event, for an answer that has begun. Only to be sent between two events.
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

/// 499 is no registered status, but it is what nginx and most dashboards call this.
#[expect(clippy::expect_used, reason = "499 is within 100..=999")]
fn client_closed_status() -> StatusCode {
    StatusCode::from_u16(499).expect("499 is a valid status code")
}

#[expect(clippy::expect_used, reason = "structs of strings and numbers always serialise")]
fn json(value: &impl Serialize) -> Bytes {
    serde_json::to_vec(value).expect("strings and numbers serialise").into()
}

/// JSON text has no raw line break, so it fits on one `data` line.
fn frame(head: &str, value: &impl Serialize) -> Bytes {
    [head.as_bytes(), b"data: ", &json(value), b"\n\n"].concat().into()
}

#[cfg(test)]
mod error_test;
