//! Errors of the API.

use http::StatusCode;
use serde_json::{Value, json};
use spillway_engine::RejectedError;

use crate::driver::Lost;

/// Error that a client receives in place of an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ApiError {
    pub(super) status: StatusCode,
    pub(super) kind: &'static str,
    /// Code of the error: null, a word as in OpenAI's API, or the status as in vLLM.
    pub(super) code: Value,
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
            code: "model_not_found".into(),
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
        Self { code: "context_length_exceeded".into(), ..Self::invalid(message, Some("messages")) }
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

    /// Returns the error 500 of an engine that died, in vLLM's words.
    pub(crate) fn engine_dead() -> Self {
        let message = "EngineCore encountered an issue";
        Self::of_vllm(StatusCode::INTERNAL_SERVER_ERROR, "InternalServerError", message)
    }

    /// Returns the error 500 of an engine that drains, in vLLM's words.
    pub(crate) fn draining() -> Self {
        let message = "cannot schedule new futures after shutdown";
        Self::of_vllm(StatusCode::INTERNAL_SERVER_ERROR, "InternalServerError", message)
    }

    /// Returns an error 400: the body has a field that a strict schema does not know.
    pub(crate) fn unknown_field(path: &str) -> Self {
        let message = format!("Extra inputs are not permitted: {path}");
        Self::of_vllm(StatusCode::BAD_REQUEST, "BadRequestError", &message)
    }

    /// Returns the error 400 of a body that its content type does not call JSON, in vLLM's words.
    pub(crate) fn no_json() -> Self {
        let message = "1 validation error:\n  Unsupported Media Type: Only 'application/json' is \
                       allowed";
        Self::of_vllm(StatusCode::BAD_REQUEST, "Bad Request", message)
    }

    /// Returns the body in the form of `/v1` endpoints.
    pub(crate) fn openai_body(&self) -> Value {
        let error = json!({
            "message": self.message,
            "type": self.kind,
            "param": self.param,
            "code": self.code,
        });
        json!({ "error": error })
    }

    /// Returns the body in the form of Anthropic's API, without the id of the request.
    pub(crate) fn anthropic_body(&self) -> Value {
        let kind = match self.status.as_u16() {
            401 => "authentication_error",
            402 => "billing_error",
            403 => "permission_error",
            404 => "not_found_error",
            408 | 504 => "timeout_error",
            413 => "request_too_large",
            429 => "rate_limit_error",
            503 | 529 => "overloaded_error",
            400..=499 => "invalid_request_error",
            _ => "api_error",
        };
        json!({ "type": "error", "error": { "type": kind, "message": self.message } })
    }

    /// Returns the message of the error.
    pub(crate) fn message(&self) -> String {
        self.message.clone()
    }

    /// Returns an error in vLLM's form, whose code is the status.
    fn of_vllm(status: StatusCode, kind: &'static str, message: &str) -> Self {
        let code = status.as_u16().into();
        Self { code, ..Self::new(status, kind, message.to_owned()) }
    }

    fn new(status: StatusCode, kind: &'static str, message: String) -> Self {
        Self { status, kind, code: Value::Null, param: None, message, retry_after_s: None }
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
                Self { code: "context_length_exceeded".into(), ..Self::invalid(message, None) }
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
