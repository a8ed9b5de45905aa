//! Errors of the API.

use http::StatusCode;
use spillway_engine::RejectedError;

use crate::driver::Lost;

/// Error that a client receives in place of an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ApiError {
    pub(super) status: StatusCode,
    pub(super) kind: &'static str,
    pub(super) code: Option<&'static str>,
    pub(super) param: Option<&'static str>,
    pub(super) message: String,
    pub(super) retry_after_s: Option<u64>,
}

impl ApiError {
    /// Returns an error 400: the client must change the request; `param` is the wrong field.
    pub(crate) fn invalid(message: impl Into<String>, param: Option<&'static str>) -> Self {
        let message = message.into();
        Self { param, ..Self::new(StatusCode::BAD_REQUEST, "invalid_request_error", message) }
    }

    /// Returns an error 404.
    pub(crate) fn not_found(message: impl Into<String>) -> Self {
        Self::new(StatusCode::NOT_FOUND, "invalid_request_error", message.into())
    }

    /// Returns an error 404: no response with this id is stored.
    pub(crate) fn unknown_response(id: &str) -> Self {
        Self::not_found(format!("Response with id '{id}' not found."))
    }

    /// Returns an error 404 for an unknown model, in OpenAI's words.
    pub(crate) fn unknown_model(model: &str) -> Self {
        let message = format!("The model `{model}` does not exist.");
        Self {
            code: Some("model_not_found"),
            param: Some("model"),
            ..Self::new(StatusCode::NOT_FOUND, "invalid_request_error", message)
        }
    }

    /// Returns an error 405.
    pub(crate) fn method_not_allowed() -> Self {
        let message = "this method is not allowed here".to_owned();
        Self::new(StatusCode::METHOD_NOT_ALLOWED, "invalid_request_error", message)
    }

    /// Returns an error 413: the body is larger than `bytes_max`.
    pub(crate) fn too_large(bytes_max: usize) -> Self {
        let message = format!("the body is larger than {bytes_max} bytes");
        Self::new(StatusCode::PAYLOAD_TOO_LARGE, "invalid_request_error", message)
    }

    /// Returns an error 415.
    pub(crate) fn unsupported_encoding() -> Self {
        let message = "compressed bodies are not supported".to_owned();
        Self::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "invalid_request_error", message)
    }

    /// Returns an error 501.
    pub(crate) fn unimplemented(message: impl Into<String>) -> Self {
        Self::new(StatusCode::NOT_IMPLEMENTED, "invalid_request_error", message.into())
    }

    /// Returns an error 504: the client's own deadline has passed.
    pub(crate) fn too_late() -> Self {
        let message = "the request was not done by its deadline".to_owned();
        Self::new(StatusCode::GATEWAY_TIMEOUT, "server_error", message)
    }

    /// Returns an error 500.
    pub(crate) fn internal(message: impl Into<String>) -> Self {
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, "server_error", message.into())
    }

    /// Returns an error 400: prompt and output together exceed the model's context of `tokens_max`.
    pub(crate) fn context_exceeded(tokens_max: u32, prompt: usize, output: u64) -> Self {
        let message = format!(
            "This model's maximum context length is {tokens_max} tokens. However, you requested \
             {} tokens ({prompt} in the prompt, {output} in the completion).",
            prompt as u64 + output,
        );
        Self { code: Some("context_length_exceeded"), ..Self::invalid(message, Some("messages")) }
    }

    /// Returns the error of an injected fault of kind `status`.
    pub(crate) fn injected(code: u16, retry_after_s: Option<u64>) -> Self {
        let status = StatusCode::from_u16(code).unwrap_or(StatusCode::SERVICE_UNAVAILABLE);
        let kind = match code {
            429 => "rate_limit_error",
            400..=499 => "invalid_request_error",
            _ => "server_error",
        };
        Self { retry_after_s, ..Self::new(status, kind, "an error on demand".to_owned()) }
    }

    /// Returns the message of the error.
    pub(crate) fn message(&self) -> String {
        self.message.clone()
    }

    fn new(status: StatusCode, kind: &'static str, message: String) -> Self {
        Self { status, kind, code: None, param: None, message, retry_after_s: None }
    }
}

impl From<RejectedError> for ApiError {
    fn from(rejected: RejectedError) -> Self {
        let message = rejected.to_string();
        match rejected {
            // SGLang answers a full queue with this status.
            RejectedError::QueueFull { .. } => {
                Self::new(StatusCode::SERVICE_UNAVAILABLE, "server_error", message)
            }
            RejectedError::TooLong { .. } => {
                Self { code: Some("context_length_exceeded"), ..Self::invalid(message, None) }
            }
            RejectedError::Empty => Self::invalid(message, None),
            RejectedError::DuplicateId(_) => Self::internal(message),
        }
    }
}

impl From<Lost> for ApiError {
    fn from(lost: Lost) -> Self {
        Self::internal(lost.to_string())
    }
}
