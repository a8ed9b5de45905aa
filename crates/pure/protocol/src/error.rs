//! Errors of the gateway, in the forms that clients of each protocol understand.
//!
//! Errors of a replica are passed on as they are; these are for the gateway's own. Codes are
//! stable: clients and dashboards may match on them.

use std::time::Duration;

use bytes::Bytes;
use http::{HeaderName, StatusCode};
use serde::Serialize;
use thiserror::Error;

mod cause;
mod kind;

pub use cause::{FailureCause, code_meaning, codes, known_code};
pub use kind::{ErrorKind, RetryAfterUse, error_reference};

use crate::Protocol;
use crate::echo::bounded;

/// Header with [`ErrorKind::code`], which distinguishes the gateway's errors from a replica's, in
/// any form of body.
pub static CODE_HEADER: HeaderName = HeaderName::from_static("x-spillway-code");

/// Header with the reason why a request was shed, [`GatewayError::shed`]. The code is the kind of
/// error; the reason shows operators what to do about it.
pub static SHED_REASON: HeaderName = HeaderName::from_static("x-spillway-shed-reason");

/// Default Retry-After under load: long enough to spread clients that would all return at once,
/// short against any generation.
pub const RETRY_DELAY: Duration = Duration::from_secs(1);
/// Largest Retry-After: predictions for a later time are worth nothing, and clients should find
/// capacity that comes back.
pub const RETRY_DELAY_MAX: Duration = Duration::from_secs(60);
/// Largest Retry-After for a client that has used up its rate limit and is in debt.
const LIMIT_DELAY_MAX: Duration = Duration::from_secs(24 * 3_600);
/// Longest Retry-After of a budget: a month.
const BUDGET_DELAY_MAX: Duration = Duration::from_secs(31 * 24 * 3_600);

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
    /// Returns true if the replica that had the request can't be reached, or broke the connection
    /// before it replied: the same request may be served later, or elsewhere.
    #[must_use]
    pub fn is_lost_replica(self) -> bool {
        matches!(self, Self::ReplicaConnect | Self::ReplicaReset | Self::ReplicaDown)
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

    /// Returns the `type` of an OpenAI error object, which shows whether client or server is to
    /// blame.
    #[must_use]
    pub fn openai_type(self) -> &'static str {
        match self {
            Self::Overloaded => "overloaded_error",
            Self::RateLimited => "rate_limit_error",
            Self::BudgetSpent => "insufficient_quota",
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
    /// which is also the minimum. The maximum is [`RETRY_DELAY_MAX`], a day for rate limits, and a
    /// month for budgets.
    #[must_use]
    pub fn retry_delay(&self) -> Option<Duration> {
        // The time until a rate limit has room is known; the time until a replica has room is
        // predicted.
        let longest = match self.kind {
            ErrorKind::RateLimited => LIMIT_DELAY_MAX,
            ErrorKind::BudgetSpent => BUDGET_DELAY_MAX,
            _ => RETRY_DELAY_MAX,
        };
        // A known delay wins; otherwise only errors of load, limits and missing replicas have one.
        let known = self.retry_after.map(|delay| delay.clamp(RETRY_DELAY, longest));
        known.or_else(|| (self.kind.retry_after() == RetryAfterUse::Always).then_some(RETRY_DELAY))
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
