//! The deep check: does it work, and does it answer right?

use std::time::Duration;

use bytes::Bytes;
use http::{HeaderValue, Method};
use serde_json::json;
use spillway_types::ModelName;

use super::{CheckResult, Expectation};
use crate::http::{Client, Failure, Reply, Reuse};
use crate::target::Target;

/// How often a replica is given real work, and which. Costs it a request each time.
#[derive(Clone, Debug, PartialEq)]
pub struct DeepCheck {
    /// The work.
    pub request: DeepRequest,
    /// What the reply must say beyond being a reply: the known answer of a known question.
    pub expect: Option<Expectation>,
    /// Pause between two checks, give or take 20 %.
    pub interval: Duration,
    /// How long one check may take, its wait in the replica's queue included.
    pub timeout: Duration,
    /// Share of the GPUs' memory in use, 0 to 1, above which a replica that answers well is still
    /// told as [`CheckResult::MemoryFull`]. Read from the last scrape; without one it says
    /// nothing. Servers that take their KV cache at the start use 0.9 and more from then on.
    pub gpu_memory_use_max: Option<f32>,
}

impl DeepCheck {
    /// Sends `request` every 30 s and waits 10 s for the answer.
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

    /// One check over a connection of its own. `gpu_memory_use` reads what the last scrape told;
    /// it is asked for after the answer.
    pub(crate) async fn run(
        &self,
        target: &Target,
        gpu_memory_use: impl FnOnce() -> Option<f32>,
    ) -> CheckResult {
        match self.ask(target).await {
            Ok(()) if self.is_memory_full(gpu_memory_use()) => CheckResult::MemoryFull,
            Ok(()) => CheckResult::Good,
            Err(Failure::Status(429 | 503)) => CheckResult::Busy,
            Err(failure) => failure.into(),
        }
    }

    async fn ask(&self, target: &Target) -> Result<(), Failure> {
        let reply = self.request.send(target, self.timeout).await?;
        let is_right = match &self.expect {
            Some(expect) => expect.is_met(&reply.body),
            None => self.request.is_answered_by(&reply.body),
        };
        if is_right { Ok(()) } else { Err(Failure::WrongAnswer) }
    }

    fn is_memory_full(&self, gpu_memory_use: Option<f32>) -> bool {
        matches!((gpu_memory_use, self.gpu_memory_use_max), (Some(used), Some(max)) if used > max)
    }
}

/// The work of a deep check.
#[derive(Clone, Debug, PartialEq)]
pub enum DeepRequest {
    /// One token over OpenAI's chat completions.
    Chat {
        /// The model to ask for.
        model: ModelName,
    },
    /// Any POST.
    Custom {
        /// Path of the request.
        path: String,
        /// Type of the body.
        content_type: HeaderValue,
        /// The body.
        body: Bytes,
    },
}

impl DeepRequest {
    /// An inference over KServe V2, with a body that fits the model.
    #[must_use]
    pub fn infer(model: &ModelName, body: Bytes) -> Self {
        let escaped = percent_encoding::utf8_percent_encode(
            model.as_str(),
            percent_encoding::NON_ALPHANUMERIC,
        );
        Self::json(format!("/v2/models/{escaped}/infer"), body)
    }

    /// A POST of JSON.
    #[must_use]
    pub fn json(path: String, body: Bytes) -> Self {
        Self::Custom { path, content_type: JSON, body }
    }

    async fn send(&self, target: &Target, bound: Duration) -> Result<Reply, Failure> {
        let mut client = Client::new(target.server(None));
        match self {
            Self::Chat { model } => one_token(&mut client, model, "Say yes.", bound).await,
            Self::Custom { path, content_type, body } => {
                post(&mut client, path, (content_type.clone(), body.clone()), bound).await
            }
        }
    }

    /// Whether `body` looks like an answer, where nothing more is expected of it.
    fn is_answered_by(&self, body: &[u8]) -> bool {
        match self {
            Self::Chat { .. } => {
                let pointer = "/choices/0".to_owned();
                Expectation::Json { pointer, value: None }.is_met(body)
            }
            Self::Custom { .. } => true,
        }
    }
}

const JSON: HeaderValue = HeaderValue::from_static("application/json");

/// Has `model` read `prompt` and write one token.
pub(crate) async fn one_token(
    client: &mut Client,
    model: &ModelName,
    prompt: &str,
    bound: Duration,
) -> Result<Reply, Failure> {
    let body = json!({
        "model": model.as_str(),
        "messages": [{ "role": "user", "content": prompt }],
        "max_tokens": 1,
        "temperature": 0,
    });
    post(client, "/v1/chat/completions", (JSON, body.to_string().into()), bound).await
}

async fn post(
    client: &mut Client,
    path: &str,
    body: (HeaderValue, Bytes),
    bound: Duration,
) -> Result<Reply, Failure> {
    let request = client.request(Method::POST, path, Some(body))?;
    let reply = client.send(request, Reuse::Fresh, bound).await?;
    match reply.status {
        status if status.is_success() => Ok(reply),
        status => Err(Failure::Status(status.as_u16())),
    }
}
