//! Properties of each kind of model server.

use std::fmt;
use std::str::FromStr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use spillway_types::ModelName;

use crate::health_check::{DeepRequest, Expectation, Probe};
use crate::scrape::{Mapping, MetricsPage};

/// Server software of a replica. It decides where the replica is asked for its health and load,
/// unless the config says otherwise.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "lowercase")]
pub enum ServerKind {
    /// vLLM.
    Vllm,
    /// SGLang. Reports its load only if it was started with `--enable-metrics`.
    Sglang,
    /// NVIDIA Triton, with TensorRT-LLM or any other backend.
    Triton,
    /// Hugging Face Text Generation Inference.
    Tgi,
    /// The server of llama.cpp. Reports its load only if it was started with `--metrics`.
    LlamaCpp,
    /// Seldon MLServer.
    MlServer,
    /// TorchServe. Reports its load only with `metrics_mode=prometheus`.
    TorchServe,
    /// TensorFlow Serving, its REST port.
    TfServing,
    /// Ollama.
    Ollama,
    /// The server of llama-cpp-python, another one than that of llama.cpp.
    #[serde(rename = "llama-cpp-python")]
    LlamaCppPython,
    /// Anything else.
    Generic,
}

/// Error: no kind of server has this name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("there is no kind of server called {0:?}")]
pub struct UnknownKindError(pub String);

impl ServerKind {
    /// All kinds.
    pub const ALL: [Self; 11] = [
        Self::Vllm,
        Self::Sglang,
        Self::Triton,
        Self::Tgi,
        Self::LlamaCpp,
        Self::MlServer,
        Self::TorchServe,
        Self::TfServing,
        Self::Ollama,
        Self::LlamaCppPython,
        Self::Generic,
    ];

    /// Returns the kind's name in the config.
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
            Self::Ollama => "ollama",
            Self::LlamaCppPython => "llama-cpp-python",
            Self::Generic => "generic",
        }
    }

    /// Returns true if the server continues a chat's last message when `continue_final_message`
    /// asks for it, together with `add_generation_prompt` where the server knows that. Other
    /// servers would answer that message, or do what their template makes of it.
    #[must_use]
    pub fn continues_chats(self) -> bool {
        matches!(self, Self::Vllm | Self::Sglang)
    }

    /// Returns true if the server may have OpenAI's page of models. On other servers the path has
    /// another meaning.
    #[must_use]
    pub fn may_list_models(self) -> bool {
        match self {
            Self::Vllm
            | Self::Sglang
            | Self::Tgi
            | Self::LlamaCpp
            | Self::Ollama
            | Self::LlamaCppPython
            | Self::Generic => true,
            Self::Triton | Self::MlServer | Self::TorchServe | Self::TfServing => false,
        }
    }

    /// Returns true if the server serves its model under any name, so that its list of models says
    /// nothing about a name.
    #[must_use]
    pub fn takes_any_name(self) -> bool {
        matches!(self, Self::Sglang | Self::Tgi | Self::LlamaCpp | Self::LlamaCppPython)
    }

    /// Returns true if the server lists its loaded models by KServe's V2 repository extension.
    #[must_use]
    pub fn has_index(self) -> bool {
        matches!(self, Self::Triton | Self::MlServer)
    }

    /// Returns true if servers of this kind may publish KV events in the form that is read. A
    /// generic server may be anything, vLLM behind another name too.
    #[must_use]
    pub fn publishes_kv_events(self) -> bool {
        matches!(self, Self::Vllm | Self::Generic)
    }

    /// Returns true if the server completes text, so that a check can ask for one token.
    #[must_use]
    pub fn generates_text(self) -> bool {
        self.may_list_models()
    }

    /// Returns the usual active check of this kind of server.
    #[must_use]
    pub fn probe(self) -> Probe {
        let http = |path: &str, not_ready: &[u16]| Probe::Http {
            path: path.to_owned(),
            port: None,
            not_ready: not_ready.to_vec(),
            expect: None,
        };
        match self {
            // vLLM listens only once the model is loaded; 503 means that its engine died.
            Self::Vllm => http("/health", &[]),
            Self::Sglang | Self::Tgi | Self::LlamaCpp | Self::Generic => http("/health", &[503]),
            // Neither has a page for its health. Ollama loads a model with its first request.
            Self::Ollama => http("/api/version", &[503]),
            Self::LlamaCppPython => http("/v1/models", &[503]),
            // Both answer 400 while they are not ready.
            Self::Triton | Self::MlServer => http("/v2/health/ready", &[400, 503]),
            Self::TorchServe => http("/ping", &[503]),
            // TensorFlow Serving answers 200 with the state of each version, loading or not.
            Self::TfServing => Probe::Http {
                path: "/v1/models/{model}".to_owned(),
                port: None,
                not_ready: vec![503],
                expect: Some(Expectation::Contains("\"AVAILABLE\"".to_owned())),
            },
        }
    }

    /// Returns the page where this kind of server reports its load. `None` for kinds without a
    /// number for it: TensorFlow Serving exports only counters and histograms of the past, Ollama and
    /// llama-cpp-python export nothing, and a generic server is unknown.
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
            | Self::Ollama
            | Self::LlamaCppPython
            | Self::Generic => None,
        };
        Mapping::of(self).map(|mapping| MetricsPage { port, path: "/metrics", mapping })
    }

    /// Returns a request for one token of `model`, for kinds that complete text. Other kinds need a
    /// body that fits their model: [`DeepRequest::infer`], [`DeepRequest::Custom`].
    #[must_use]
    pub fn inference(self, model: &ModelName) -> Option<DeepRequest> {
        match self {
            Self::Vllm
            | Self::Sglang
            | Self::Tgi
            | Self::LlamaCpp
            | Self::Ollama
            | Self::LlamaCppPython
            | Self::Generic => Some(DeepRequest::Chat { model: model.clone() }),
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
    type Err = UnknownKindError;

    fn from_str(name: &str) -> Result<Self, UnknownKindError> {
        let known = Self::ALL.into_iter().find(|kind| kind.as_str() == name);
        known.ok_or_else(|| UnknownKindError(name.to_owned()))
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
        assert_eq!("other".parse::<ServerKind>(), Err(UnknownKindError("other".to_owned())));
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
