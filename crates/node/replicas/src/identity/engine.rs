//! Recognition of server software. Pure: it takes a status and the bytes of a page and returns a
//! kind.

use serde_json::Value;
use spillway_types::{ModelName, ModelsPage};

use super::models::read_page;
use crate::kind::ServerKind;

/// Prefixes of metrics by which a server is recognised.
const METRICS: [(&str, ServerKind); 5] = [
    ("vllm:", ServerKind::Vllm),
    ("sglang:", ServerKind::Sglang),
    ("llamacpp:", ServerKind::LlamaCpp),
    ("tgi_", ServerKind::Tgi),
    ("nv_inference_", ServerKind::Triton),
];
/// Owners of models by which a server is recognised.
const OWNERS: [(&str, ServerKind); 3] = [
    ("vllm", ServerKind::Vllm),
    ("sglang", ServerKind::Sglang),
    ("llamacpp", ServerKind::LlamaCpp),
];
/// Largest JSON page that is read: the longest, SGLang's, has some tens of kilobytes.
const JSON_BYTES_MAX: usize = 1 << 20;

/// Page by which a model server can be recognised.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EnginePage {
    /// List of models of OpenAI's API, with their owners.
    Models,
    /// Prometheus metrics.
    Metrics,
    /// Server metadata of KServe V2.
    V2,
    /// Description of itself by Text Generation Inference.
    Info,
    /// Settings of llama.cpp.
    Props,
    /// Settings of SGLang, at their newer path.
    ServerInfo,
    /// Settings of SGLang, at their older path.
    GetServerInfo,
    /// OpenAPI document of TorchServe.
    ApiDescription,
    /// Greeting of Ollama.
    Root,
    /// Models that Ollama has on its disk.
    Tags,
}

impl EnginePage {
    /// All pages in the order in which they are asked for: pages that most servers have come first.
    pub(crate) const ALL: [Self; 10] = [
        Self::Models,
        Self::Metrics,
        Self::V2,
        Self::Info,
        Self::Props,
        Self::ServerInfo,
        Self::GetServerInfo,
        Self::ApiDescription,
        Self::Root,
        Self::Tags,
    ];

    /// Returns the path of the page.
    pub(crate) fn path(self) -> &'static str {
        match self {
            Self::Models => "/v1/models",
            Self::Metrics => "/metrics",
            Self::V2 => "/v2",
            Self::Info => "/info",
            Self::Props => "/props",
            Self::ServerInfo => "/server_info",
            Self::GetServerInfo => "/get_server_info",
            Self::ApiDescription => "/api-description",
            Self::Root => "/",
            Self::Tags => "/api/tags",
        }
    }

    /// Returns the kind of server that gives this answer; `None` if the page does not show it.
    pub(crate) fn kind(self, status: u16, body: &[u8]) -> Option<ServerKind> {
        let is_good = (200..300).contains(&status);
        match self {
            // TensorFlow Serving gives the state of one model at a time below this path. A proxy that
            // puts something before the path makes it malformed.
            Self::Models if status == 400 => {
                let error = json(body)?["error"].as_str()?.to_owned();
                let is_known = error == "Missing model name in request."
                    || error.starts_with("Malformed request: GET /v1/models");
                is_known.then_some(ServerKind::TfServing)
            }
            _ if !is_good => None,
            Self::Models => {
                let page = read_page(body)?;
                named(&OWNERS, |owner| page.owner() == Some(owner))
                    .or_else(|| is_llama_cpp_python(&page).then_some(ServerKind::LlamaCppPython))
            }
            Self::Metrics => {
                let page = std::str::from_utf8(body).ok()?;
                page.lines()
                    .find_map(|line| named(&METRICS, |prefix| metric(line).starts_with(prefix)))
            }
            Self::V2 => v2(&json(body)?),
            Self::Info => {
                let info = json(body)?;
                let router = info["router"].as_str().unwrap_or_default();
                // The sister product for embeddings has the same page without this limit.
                let is_tgi = router.contains("text-generation")
                    || !info["model_id"].is_null() && !info["max_total_tokens"].is_null();
                is_tgi.then_some(ServerKind::Tgi)
            }
            Self::Props => has(&json(body)?, &["default_generation_settings", "total_slots"])
                .then_some(ServerKind::LlamaCpp),
            Self::ServerInfo | Self::GetServerInfo => {
                has(&json(body)?, &["model_path", "tokenizer_path", "internal_states"])
                    .then_some(ServerKind::Sglang)
            }
            Self::ApiDescription => (json(body)?["info"]["title"] == "TorchServe APIs")
                .then_some(ServerKind::TorchServe),
            Self::Root => (body.trim_ascii() == b"Ollama is running").then_some(ServerKind::Ollama),
            Self::Tags => {
                let models = json(body)?["models"].as_array()?.clone();
                let is_own = |model: &Value| has(model, &["name", "digest", "details"]);
                (!models.is_empty() && models.iter().all(is_own)).then_some(ServerKind::Ollama)
            }
        }
    }
}

/// Returns true for the list of llama-cpp-python: its owner is `me`, and it has permissions by a name of
/// its own.
fn is_llama_cpp_python(page: &ModelsPage) -> bool {
    let permissions = |id: &ModelName| page.get(id)?.fields.get("permissions");
    let has_own = |id: &ModelName| permissions(id).is_some_and(|text| text == "[]");
    page.owner() == Some("me") && page.ids().all(has_own)
}

/// Recognises a server by KServe V2's metadata. The name can be configured; the extensions are
/// Triton's alone.
fn v2(metadata: &Value) -> Option<ServerKind> {
    let extensions = metadata["extensions"].as_array().into_iter().flatten();
    let mut extensions = extensions.filter_map(Value::as_str);
    match metadata["name"].as_str()?.to_ascii_lowercase().as_str() {
        "mlserver" => Some(ServerKind::MlServer),
        "triton" => Some(ServerKind::Triton),
        _ if extensions.any(|it| it.starts_with("model_repository(")) => Some(ServerKind::Triton),
        _ => None,
    }
}

/// Returns the part of a line that begins with a metric's name.
fn metric(line: &str) -> &str {
    let about = line.strip_prefix("# HELP ").or_else(|| line.strip_prefix("# TYPE "));
    about.unwrap_or(line)
}

fn named<'t>(
    table: &'t [(&'t str, ServerKind)],
    is_it: impl Fn(&str) -> bool,
) -> Option<ServerKind> {
    table.iter().find(|(name, _)| is_it(name)).map(|(_, kind)| *kind)
}

fn has(object: &Value, fields: &[&str]) -> bool {
    fields.iter().all(|field| object.get(field).is_some())
}

fn json(body: &[u8]) -> Option<Value> {
    if body.len() > JSON_BYTES_MAX {
        return None;
    }
    serde_json::from_slice(body).ok()
}

#[cfg(test)]
#[path = "engine_test.rs"]
mod engine_test;
