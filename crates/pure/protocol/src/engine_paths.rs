//! Paths that engines serve to clients, and the gateway only by a route of the config.

use std::fmt;

/// Route that passes such a path on. Its text is a table of the config.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MissingRoute {
    path_prefix: &'static str,
    /// `openai` where the body names the model, else `raw`.
    protocol: &'static str,
}

/// Paths whose JSON body names the model: Anthropic's and Cohere's APIs, Ollama's, and token ids of
/// vLLM.
const WITH_MODEL: [&str; 7] = [
    "/v1/messages",
    "/v2/chat",
    "/cohere",
    "/api/chat",
    "/api/generate",
    "/api/embed",
    "/inference/v1/generate",
];
/// Paths without a model in a body: facts of a server, and native APIs of TGI, TEI, SGLang and
/// llama.cpp.
const WITHOUT_MODEL: [&str; 15] = [
    "/version",
    "/info",
    "/props",
    "/get_model_info",
    "/generate",
    "/generate_stream",
    "/completion",
    "/infill",
    "/embedding",
    "/embed",
    "/embed_all",
    "/embed_sparse",
    "/similarity",
    "/predict",
    "/api/tags",
];

impl MissingRoute {
    /// Returns the route that would pass `path` on to replicas; `None` if no engine is known to
    /// serve it.
    #[must_use]
    pub fn of(path: &str) -> Option<Self> {
        let leads = |prefix: &&'static str| {
            let rest = path.strip_prefix(prefix);
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        };
        let found = |prefixes: &'static [&'static str], protocol| {
            let path_prefix = prefixes.iter().copied().find(leads)?;
            Some(Self { path_prefix, protocol })
        };
        found(&WITH_MODEL, "openai").or_else(|| found(&WITHOUT_MODEL, "raw"))
    }
}

impl fmt::Display for MissingRoute {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { path_prefix, protocol } = self;
        let name = path_prefix.trim_start_matches('/').replace('/', "-");
        write!(
            f,
            "[[route]]\nname = \"{name}\"\npath_prefix = \"{path_prefix}\"\nprotocol = \"{protocol}\""
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Endpoint;

    #[test]
    fn a_path_of_engines_names_its_route() {
        let text = |path: &str| MissingRoute::of(path).map(|route| route.to_string());
        let messages = "[[route]]\nname = \"v1-messages\"\npath_prefix = \"/v1/messages\"\nprotocol = \"openai\"";
        assert_eq!(text("/v1/messages").as_deref(), Some(messages));
        assert_eq!(text("/v1/messages/count_tokens").as_deref(), Some(messages));
        assert!(text("/version").is_some_and(|route| route.ends_with("protocol = \"raw\"")));
        for path in ["/", "/v1/messages2", "/versions", "/metrics", "/x/version", "/v1/files"] {
            assert_eq!(text(path), None, "{path}");
        }
    }

    #[test]
    fn what_the_gateway_serves_itself_needs_no_route() {
        for path in WITH_MODEL.iter().chain(&WITHOUT_MODEL) {
            assert_eq!(Endpoint::classify(path), Endpoint::Other, "{path}");
        }
    }
}
