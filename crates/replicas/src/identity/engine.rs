//! Which software a page comes from. Pure: a status and the bytes of a page in, a kind out.

use serde_json::Value;

use super::models::read_page;
use crate::kind::ServerKind;

/// Prefixes of the metrics that name their server.
const METRICS: [(&str, ServerKind); 5] = [
    ("vllm:", ServerKind::Vllm),
    ("sglang:", ServerKind::Sglang),
    ("llamacpp:", ServerKind::LlamaCpp),
    ("tgi_", ServerKind::Tgi),
    ("nv_inference_", ServerKind::Triton),
];
/// Owners of models that name their server.
const OWNERS: [(&str, ServerKind); 3] = [
    ("vllm", ServerKind::Vllm),
    ("sglang", ServerKind::Sglang),
    ("llamacpp", ServerKind::LlamaCpp),
];
/// Bytes of a page of JSON that are looked at: the longest, SGLang's, has some tens of kilobytes.
const JSON_BYTES_MAX: usize = 1 << 20;

/// A page by which a model server can be recognised.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EnginePage {
    /// The list of models of OpenAI's API, with what owns them.
    Models,
    /// Prometheus metrics.
    Metrics,
    /// KServe V2's server metadata.
    V2,
    /// Text Generation Inference's description of itself.
    Info,
    /// llama.cpp's settings.
    Props,
    /// SGLang's settings, by their newer path.
    ServerInfo,
    /// The same by their older path.
    GetServerInfo,
    /// TorchServe's OpenAPI document.
    ApiDescription,
}

impl EnginePage {
    /// All pages, in the order in which they are asked for: those that most servers have come first.
    pub(crate) const ALL: [Self; 8] = [
        Self::Models,
        Self::Metrics,
        Self::V2,
        Self::Info,
        Self::Props,
        Self::ServerInfo,
        Self::GetServerInfo,
        Self::ApiDescription,
    ];

    /// Where the page is.
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
        }
    }

    /// The kind of server that answers so; `None` if the page does not tell.
    pub(crate) fn kind(self, status: u16, body: &[u8]) -> Option<ServerKind> {
        let is_good = (200..300).contains(&status);
        match self {
            // Its list of one model has another path: it says what it takes this one for.
            Self::Models if status == 400 => {
                let error = json(body)?["error"].as_str()?.to_owned();
                error
                    .starts_with("Malformed request: GET /v1/models")
                    .then_some(ServerKind::TfServing)
            }
            _ if !is_good => None,
            Self::Models => {
                let page = read_page(body)?;
                named(&OWNERS, |owner| page.owner() == Some(owner))
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
                // Its sibling for embeddings has the same page, without this limit.
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
        }
    }
}

/// The server of KServe V2's metadata. Its name can be set; the extensions are Triton's alone.
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

/// The name of the metric that a line is about; empty if there is none.
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
