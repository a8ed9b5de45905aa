//! What is known of each kind of model server.

use std::fmt;
use std::str::FromStr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use spillway_types::ModelName;

use crate::check::{DeepRequest, Expectation, Probe};
use crate::scrape::Mapping;

/// Which software a replica runs. Decides where it is asked for its health and load, unless the
/// config says otherwise.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "lowercase")]
pub enum ServerKind {
    /// vLLM.
    Vllm,
    /// SGLang. Tells its load only if it was started with `--enable-metrics`.
    Sglang,
    /// NVIDIA Triton, with TensorRT-LLM or any other backend.
    Triton,
    /// Hugging Face Text Generation Inference.
    Tgi,
    /// The server of llama.cpp. Tells its load only if it was started with `--metrics`.
    LlamaCpp,
    /// Seldon MLServer.
    MlServer,
    /// TorchServe. Tells its load only with `metrics_mode=prometheus`.
    TorchServe,
    /// TensorFlow Serving, its REST port.
    TfServing,
    /// Anything else.
    Generic,
}

/// Where a kind of server tells its load.
#[derive(Clone, Debug, PartialEq)]
pub struct MetricsPage {
    /// Port of its own, where it is not the API's.
    pub port: Option<u16>,
    /// Path of the page.
    pub path: &'static str,
    /// What on it means what.
    pub mapping: Mapping,
}

/// The name is none of the kinds.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("there is no kind of server called {0:?}")]
pub struct UnknownKind(pub String);

impl ServerKind {
    /// All of them.
    pub const ALL: [Self; 9] = [
        Self::Vllm,
        Self::Sglang,
        Self::Triton,
        Self::Tgi,
        Self::LlamaCpp,
        Self::MlServer,
        Self::TorchServe,
        Self::TfServing,
        Self::Generic,
    ];

    /// Name as it stands in the config.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Vllm => "vllm",
            Self::Sglang => "sglang",
            Self::Triton => "triton",
            Self::Tgi => "tgi",
            Self::LlamaCpp => "llamacpp",
            Self::MlServer => "mlserver",
            Self::TorchServe => "torchserve",
            Self::TfServing => "tfserving",
            Self::Generic => "generic",
        }
    }

    /// Whether it goes on with a chat's last message when it is told so by `continue_final_message`,
    /// beside `add_generation_prompt` where it knows that. Others would answer that message, or go
    /// by what their template makes of it.
    #[must_use]
    pub fn continues_chats(self) -> bool {
        matches!(self, Self::Vllm | Self::Sglang)
    }

    /// Whether it may have OpenAI's page of models. What others have at its path means something else.
    #[must_use]
    pub fn may_list_models(self) -> bool {
        match self {
            Self::Vllm | Self::Sglang | Self::Tgi | Self::LlamaCpp | Self::Generic => true,
            Self::Triton | Self::MlServer | Self::TorchServe | Self::TfServing => false,
        }
    }

    /// Whether it lists the models that it has loaded by KServe's V2 repository extension.
    #[must_use]
    pub fn has_index(self) -> bool {
        matches!(self, Self::Triton | Self::MlServer)
    }

    /// Whether it completes text, so that a token of it can be asked for.
    #[must_use]
    pub fn generates_text(self) -> bool {
        self.may_list_models()
    }

    /// How it is asked whether it is up.
    #[must_use]
    pub fn probe(self) -> Probe {
        let http = |path: &str, not_ready: &[u16]| Probe::Http {
            path: path.to_owned(),
            port: None,
            not_ready: not_ready.to_vec(),
            expect: None,
        };
        match self {
            // It listens only once the model is loaded; 503 says that its engine died.
            Self::Vllm => http("/health", &[]),
            Self::Sglang | Self::Tgi | Self::LlamaCpp | Self::Generic => http("/health", &[503]),
            // Both say "not ready" with 400.
            Self::Triton | Self::MlServer => http("/v2/health/ready", &[400, 503]),
            Self::TorchServe => http("/ping", &[503]),
            // Answers 200 with the state of each version, loading or not.
            Self::TfServing => Probe::Http {
                path: "/v1/models/{model}".to_owned(),
                port: None,
                not_ready: vec![503],
                expect: Some(Expectation::Contains("\"AVAILABLE\"".to_owned())),
            },
        }
    }

    /// Where it tells its load; `None` for kinds that have no number for that: TensorFlow Serving
    /// exports only counters and histograms of what is over, and of a generic server nothing is
    /// known.
    #[must_use]
    pub fn metrics(self) -> Option<MetricsPage> {
        let port = match self {
            Self::Triton => Some(8002),
            Self::MlServer | Self::TorchServe => Some(8082),
            Self::Vllm
            | Self::Sglang
            | Self::Tgi
            | Self::LlamaCpp
            | Self::TfServing
            | Self::Generic => None,
        };
        Mapping::of(self).map(|mapping| MetricsPage { port, path: "/metrics", mapping })
    }

    /// A request for one token of `model`, for kinds that complete text. The others need a body
    /// that fits their model: [`DeepRequest::infer`], [`DeepRequest::Custom`].
    #[must_use]
    pub fn inference(self, model: &ModelName) -> Option<DeepRequest> {
        match self {
            Self::Vllm | Self::Sglang | Self::Tgi | Self::LlamaCpp | Self::Generic => {
                Some(DeepRequest::Chat { model: model.clone() })
            }
            Self::Triton | Self::MlServer | Self::TorchServe | Self::TfServing => None,
        }
    }
}

impl fmt::Display for ServerKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for ServerKind {
    type Err = UnknownKind;

    fn from_str(name: &str) -> Result<Self, UnknownKind> {
        let known = Self::ALL.into_iter().find(|kind| kind.as_str() == name);
        known.ok_or_else(|| UnknownKind(name.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_the_same_in_text_and_in_the_config() {
        for kind in ServerKind::ALL {
            assert_eq!(kind.as_str().parse(), Ok(kind));
            let json = serde_json::to_value(kind).unwrap();
            assert_eq!(json, kind.as_str());
            assert_eq!(serde_json::from_value::<ServerKind>(json).unwrap(), kind);
        }
        assert_eq!("ollama".parse::<ServerKind>(), Err(UnknownKind("ollama".to_owned())));
    }

    #[test]
    fn kinds_that_tell_their_load_say_where() {
        let place = |kind: ServerKind| kind.metrics().map(|page| (page.port, page.path));
        assert_eq!(place(ServerKind::Vllm), Some((None, "/metrics")));
        assert_eq!(place(ServerKind::Triton), Some((Some(8002), "/metrics")));
        assert_eq!(place(ServerKind::MlServer), Some((Some(8082), "/metrics")));
        assert_eq!(place(ServerKind::TorchServe), Some((Some(8082), "/metrics")));
        assert_eq!(place(ServerKind::TfServing), None);
        assert_eq!(place(ServerKind::Generic), None);
    }
}
