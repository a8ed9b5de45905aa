//! Deep health check: tests that a replica works and gives the known answer.

use std::time::Duration;

use bytes::Bytes;
use http::{HeaderValue, Method};
use serde_json::json;
use spillway_types::ModelName;

use super::{CheckResult, Expectation};
use crate::http::{HttpClient, HttpReply, HttpServer, RequestError, Reuse};

/// Deep check of a replica: a real request, sent at an interval. Each check costs the replica one
/// request.
#[derive(Clone, Debug, PartialEq)]
pub struct DeepCheck {
    /// Request of the check.
    pub request: DeepRequest,
    /// Content that the reply must have: the known answer of a known question. `None` accepts any
    /// answer of the right form.
    pub expect: Option<Expectation>,
    /// Pause between two checks, with 20 % jitter.
    pub interval: Duration,
    /// Time limit of one check, its wait in the replica's queue included.
    pub timeout: Duration,
    /// Share of the GPUs' memory in use, 0 to 1, above which a replica that answers well still
    /// yields [`CheckResult::MemoryFull`]. The share is read from the last scrape; without a scrape
    /// it is not checked. Servers that reserve memory for their KV cache at the start use 0.9 and
    /// more from then on.
    pub gpu_memory_use_max: Option<f32>,
}

impl DeepCheck {
    /// Makes a check that sends `request` every 30 s and waits 10 s for the answer.
    #[must_use]
    pub fn new(request: DeepRequest) -> Self {
        Self {
            request,
            expect: None,
            interval: Duration::from_secs(30),
            timeout: Duration::from_secs(10),
            gpu_memory_use_max: None,
        }
    }

    /// Runs one check of the server `api` over a connection of its own. `gpu_memory_use` returns the share in the last
    /// scrape; it is called after the answer.
    pub(crate) async fn run(
        &self,
        api: &HttpServer,
        gpu_memory_use: impl FnOnce() -> Option<f32>,
    ) -> CheckResult {
        match self.ask(api).await {
            Ok(()) if self.is_memory_full(gpu_memory_use()) => CheckResult::MemoryFull,
            Ok(()) => CheckResult::Good,
            // A refusal for overload is no fault of the replica.
            Err(RequestError::Status(429 | 503)) => CheckResult::Busy,
            Err(failure) => failure.into(),
        }
    }

    async fn ask(&self, api: &HttpServer) -> Result<(), RequestError> {
        let reply = self.request.send(api, self.timeout).await?;
        let is_right = match &self.expect {
            Some(expect) => expect.is_met(&reply.body),
            None => self.request.is_answered_by(&reply.body),
        };
        if is_right { Ok(()) } else { Err(RequestError::WrongAnswer) }
    }

    fn is_memory_full(&self, gpu_memory_use: Option<f32>) -> bool {
        matches!((gpu_memory_use, self.gpu_memory_use_max), (Some(used), Some(max)) if used > max)
    }
}

/// Request of a deep check.
#[derive(Clone, Debug, PartialEq)]
pub enum DeepRequest {
    /// Chat completion of OpenAI's API, limited to one token.
    Chat {
        /// Model that is asked for.
        model: ModelName,
    },
    /// POST request of any content.
    Custom {
        /// Path of the request.
        path: String,
        /// Content type of the body.
        content_type: HeaderValue,
        /// Body of the request.
        body: Bytes,
    },
}

impl DeepRequest {
    /// Makes an inference request of KServe V2, with a body that fits the model.
    #[must_use]
    pub fn infer(model: &ModelName, body: Bytes) -> Self {
        let escaped = percent_encoding::utf8_percent_encode(
            model.as_str(),
            percent_encoding::NON_ALPHANUMERIC,
        );
        Self::json(format!("/v2/models/{escaped}/infer"), body)
    }

    /// Makes a POST request with a JSON body.
    #[must_use]
    pub fn json(path: String, body: Bytes) -> Self {
        Self::Custom { path, content_type: JSON, body }
    }

    async fn send(&self, api: &HttpServer, bound: Duration) -> Result<HttpReply, RequestError> {
        let mut client = HttpClient::new(api.clone());
        match self {
            Self::Chat { model } => one_token(&mut client, model, "Say yes.", bound).await,
            Self::Custom { path, content_type, body } => {
                post(&mut client, path, (content_type.clone(), body.clone()), bound).await
            }
        }
    }

    /// Returns true if `body` has the form of an answer, for checks without an expected answer.
    fn is_answered_by(&self, body: &[u8]) -> bool {
        match self {
            Self::Chat { .. } => {
                let pointer = "/choices/0".to_owned();
                Expectation::Json { pointer, value: None }.is_met(body)
            }
            // The form of a right answer is not known here.
            Self::Custom { .. } => true,
        }
    }
}

const JSON: HeaderValue = HeaderValue::from_static("application/json");

/// Asks `model` to read `prompt` and write one token.
pub(crate) async fn one_token(
    client: &mut HttpClient,
    model: &ModelName,
    prompt: &str,
    bound: Duration,
) -> Result<HttpReply, RequestError> {
    let body = json!({
        "model": model.as_str(),
        "messages": [{ "role": "user", "content": prompt }],
        "max_tokens": 1,
        "temperature": 0,
    });
    post(client, "/v1/chat/completions", (JSON, body.to_string().into()), bound).await
}

async fn post(
    client: &mut HttpClient,
    path: &str,
    body: (HeaderValue, Bytes),
    bound: Duration,
) -> Result<HttpReply, RequestError> {
    let request = client.request(Method::POST, path, Some(body))?;
    let reply = client.send(request, Reuse::Fresh, bound).await?;
    match reply.status {
        status if status.is_success() => Ok(reply),
        status => Err(RequestError::Status(status.as_u16())),
    }
}
