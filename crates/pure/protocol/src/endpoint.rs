//! Classification of the paths of the built-in APIs: OpenAI, Anthropic and KServe V2.
//!
//! Paths are compared as they were sent. A path that a lenient server might read as another one
//! (dot segments, doubled slashes, encoded slashes) is no endpoint. A request is therefore never
//! judged by one rule and served by another.

use std::borrow::Cow;

use percent_encoding::percent_decode_str;

use crate::grpc::GrpcMethod;
use crate::plain_path::{has_encoded_slash, is_plain};

/// API family of an endpoint, which decides on the form of errors.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Protocol {
    /// OpenAI API, under `/v1`.
    OpenAi,
    /// Anthropic API: `/v1/messages` and paths below it. Only its errors differ from OpenAI's; the
    /// routes of the config decide which requests are served there.
    Anthropic,
    /// Open Inference Protocol of KServe and Triton, under `/v2`.
    KServeV2,
    /// gRPC: the KServe V2 service, the health service, and services that a route passes through.
    Grpc,
    /// Any other request that a route of the config passes through unread.
    Raw,
}

/// Endpoint of a request path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Endpoint<'p> {
    /// Path `/v1/chat/completions`.
    ChatCompletions,
    /// Path `/v1/completions`.
    Completions,
    /// Path `/v1/responses`.
    Responses,
    /// Path `/v1/embeddings`.
    Embeddings,
    /// Paths `/rerank`, `/v1/rerank` and `/v2/rerank`.
    Rerank,
    /// Path `/v1/responses/{id}`, with or without `/cancel` or `/input_items`.
    ResponseById {
        /// Id of the response, made of letters, digits, `_`, `-` and `.`.
        id: &'p str,
    },
    /// Path `/v1/models`.
    ModelList,
    /// Path `/v1/models/{model}`; the name may contain slashes.
    ModelById {
        /// Name of the model as sent, see [`decode_name`].
        model: &'p str,
    },
    /// Other OpenAI-style endpoint whose JSON body names a model.
    JsonPassthrough,
    /// OpenAI-style endpoint whose multipart form names a model.
    FormPassthrough,
    /// Path `/v2/health/live`.
    V2Live,
    /// Path `/v2/health/ready`.
    V2Ready,
    /// Path `/v2`: metadata of the server.
    V2Server,
    /// Path `/v2/models/{model}[/versions/{version}][/{action}]`.
    V2Model {
        /// Name of the model as sent, see [`decode_name`].
        model: &'p str,
        /// Version as sent, if the path has one.
        version: Option<&'p str>,
        /// Action: `infer`, `ready`, `generate_stream` and others; empty for the model's metadata.
        action: &'p str,
    },
    /// Path `/livez`: liveness of this process.
    Livez,
    /// Path `/readyz`, also `/health` and `/ping`, the names of model servers: readiness of this
    /// process.
    Readyz,
    /// Path `/steering`: reports whether new clients should be sent to this node.
    Steering,
    /// Method called over gRPC; found by the content type, not by [`Endpoint::classify`].
    Grpc(GrpcMethod),
    /// No endpoint.
    Other,
}

impl Protocol {
    /// Guesses the API family that a client meant, for errors about paths that are no endpoint.
    #[must_use]
    pub fn of_path(path: &str) -> Self {
        if is_messages(path) {
            return Self::Anthropic;
        }
        // Engines serve a part of Cohere's API below `/v2`, with errors of OpenAI's.
        let is_json =
            matches!(Endpoint::classify(path), Endpoint::JsonPassthrough | Endpoint::Rerank);
        if is_json || path.starts_with("/v2/chat") {
            return Self::OpenAi;
        }
        match path.trim_start_matches('/').split('/').next() {
            Some("v1") => Self::OpenAi,
            Some("v2") => Self::KServeV2,
            _ => Self::Raw,
        }
    }
}

impl<'p> Endpoint<'p> {
    /// Returns true for checks of liveness, of readiness, or of steering.
    #[must_use]
    pub fn is_health(self) -> bool {
        match self {
            Self::Livez | Self::Readyz | Self::Steering | Self::V2Live | Self::V2Ready => true,
            Self::Grpc(method) => method.is_local() && method != GrpcMethod::ServerMetadata,
            _ => false,
        }
    }

    /// Returns OpenTelemetry's name of the operation; `None` if it has none.
    #[must_use]
    pub fn operation(self) -> Option<&'static str> {
        match self {
            Self::ChatCompletions | Self::Responses => Some("chat"),
            Self::Completions => Some("text_completion"),
            Self::Embeddings => Some("embeddings"),
            _ => None,
        }
    }

    /// Classifies a request path (without its query) as sent. One trailing slash is tolerated.
    #[must_use]
    pub fn classify(path: &'p str) -> Self {
        let path = path.strip_suffix('/').unwrap_or(path);
        match path {
            "/v1/chat/completions" => Self::ChatCompletions,
            "/v1/completions" => Self::Completions,
            "/v1/responses" => Self::Responses,
            "/v1/embeddings" => Self::Embeddings,
            "/v1/models" => Self::ModelList,
            "/rerank" | "/v1/rerank" | "/v2/rerank" => Self::Rerank,
            // Servers serve the first two by the body's model; ids of responses never look like
            // them.
            "/v1/responses/input_tokens"
            | "/v1/responses/compact"
            | "/v1/chat/completions/batch"
            | "/invocations"
            | "/generative_scoring"
            | "/v2/embed"
            | "/v1/audio/speech"
            | "/v1/images/generations"
            | "/v1/moderations"
            | "/v1/score"
            | "/v1/classify"
            | "/v1/pooling"
            | "/v1/tokenize"
            | "/v1/detokenize"
            | "/score"
            | "/classify"
            | "/pooling"
            | "/tokenize"
            | "/detokenize" => Self::JsonPassthrough,
            "/v1/audio/transcriptions"
            | "/v1/audio/translations"
            | "/v1/images/edits"
            | "/v1/images/variations" => Self::FormPassthrough,
            "/v2" => Self::V2Server,
            "/v2/health/live" => Self::V2Live,
            "/v2/health/ready" => Self::V2Ready,
            "/livez" => Self::Livez,
            "/readyz" | "/health" | "/ping" => Self::Readyz,
            "/steering" => Self::Steering,
            // Only a path with a name in it can be misread.
            _ if is_plain(path) => classify_named(path),
            _ => Self::Other,
        }
    }

    /// Returns the API family whose error bodies a client of this endpoint understands.
    #[must_use]
    pub fn protocol(&self) -> Protocol {
        match self {
            Self::V2Live | Self::V2Ready | Self::V2Server | Self::V2Model { .. } => {
                Protocol::KServeV2
            }
            Self::Grpc(_) => Protocol::Grpc,
            Self::Livez | Self::Readyz | Self::Other => Protocol::Raw,
            _ => Protocol::OpenAi,
        }
    }
}

/// Returns true for a path of the Anthropic API: `/v1/messages` or below it, with any prefix.
#[must_use]
pub fn is_messages(path: &str) -> bool {
    const MESSAGES: &str = "/v1/messages";
    path.match_indices(MESSAGES).any(|(at, _)| {
        let rest = &path[at + MESSAGES.len()..];
        rest.is_empty() || rest.starts_with('/')
    })
}

/// Decodes a model name from a path; `None` if the decoded bytes are not UTF-8.
///
/// Only for look-ups: the path is forwarded as sent.
#[must_use]
pub fn decode_name(segment: &str) -> Option<Cow<'_, str>> {
    percent_decode_str(segment).decode_utf8().ok()
}

fn classify_named(path: &str) -> Endpoint<'_> {
    if let Some(model) = path.strip_prefix("/v1/models/") {
        Endpoint::ModelById { model }
    } else if let Some(item) = path.strip_prefix("/v1/responses/") {
        classify_response(item)
    } else if let Some(item) = path.strip_prefix("/v2/models/") {
        classify_v2_model(item)
    } else {
        Endpoint::Other
    }
}

fn classify_response(item: &str) -> Endpoint<'_> {
    let (id, action) = item.split_once('/').unwrap_or((item, ""));
    let is_known = matches!(action, "" | "cancel" | "input_items");
    if is_known && is_response_id(id) { Endpoint::ResponseById { id } } else { Endpoint::Other }
}

fn classify_v2_model(item: &str) -> Endpoint<'_> {
    // With an encoded slash, one segment here could be several at the replica.
    if has_encoded_slash(item) {
        return Endpoint::Other;
    }
    let mut segments = item.split('/');
    let model = segments.next().unwrap_or_default();
    let mut action = segments.next();
    let mut version = None;
    // The path has a version between the model and the action.
    if action == Some("versions") {
        version = segments.next();
        action = segments.next();
        if version.is_none() {
            return Endpoint::Other;
        }
    }
    let action = action.unwrap_or_default();
    if segments.next().is_some() || !action.bytes().all(|b| b.is_ascii_lowercase() || b == b'_') {
        return Endpoint::Other;
    }
    Endpoint::V2Model { model, version, action }
}

fn is_response_id(id: &str) -> bool {
    !id.is_empty()
        && id.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-' | b'.'))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[track_caller]
    fn check(path: &str, expected: Endpoint<'_>) {
        assert_eq!(Endpoint::classify(path), expected, "{path}");
    }

    /// Checks the endpoint of a path with a model name or an id in it.
    #[track_caller]
    fn check_v2(path: &str, model: &str, version: Option<&str>, action: &str) {
        check(path, Endpoint::V2Model { model, version, action });
    }

    #[test]
    fn fixed_paths_are_endpoints_with_and_without_a_trailing_slash() {
        for (path, expected) in [
            ("/v1/chat/completions", Endpoint::ChatCompletions),
            ("/v1/completions", Endpoint::Completions),
            ("/v1/responses", Endpoint::Responses),
            ("/v1/embeddings", Endpoint::Embeddings),
            ("/rerank", Endpoint::Rerank),
            ("/v1/rerank", Endpoint::Rerank),
            ("/v2/rerank", Endpoint::Rerank),
            ("/v1/models", Endpoint::ModelList),
            ("/v1/audio/speech", Endpoint::JsonPassthrough),
            ("/v1/moderations", Endpoint::JsonPassthrough),
            ("/tokenize", Endpoint::JsonPassthrough),
            ("/v1/chat/completions/batch", Endpoint::JsonPassthrough),
            ("/invocations", Endpoint::JsonPassthrough),
            ("/generative_scoring", Endpoint::JsonPassthrough),
            ("/v2/embed", Endpoint::JsonPassthrough),
            ("/v1/responses/input_tokens", Endpoint::JsonPassthrough),
            ("/v1/responses/compact", Endpoint::JsonPassthrough),
            ("/v1/audio/transcriptions", Endpoint::FormPassthrough),
            ("/v1/images/edits", Endpoint::FormPassthrough),
            ("/v2", Endpoint::V2Server),
            ("/v2/health/live", Endpoint::V2Live),
            ("/v2/health/ready", Endpoint::V2Ready),
            ("/livez", Endpoint::Livez),
            ("/readyz", Endpoint::Readyz),
            ("/health", Endpoint::Readyz),
            ("/ping", Endpoint::Readyz),
            ("/steering", Endpoint::Steering),
        ] {
            check(path, expected);
            check(&format!("{path}/"), expected);
            check(&format!("{path}//"), Endpoint::Other);
        }
    }

    #[test]
    fn names_in_paths_are_found() {
        check("/v1/models/tiny", Endpoint::ModelById { model: "tiny" });
        check("/v1/models/meta/llama-3", Endpoint::ModelById { model: "meta/llama-3" });
        check("/v1/models/meta%2Fllama-3", Endpoint::ModelById { model: "meta%2Fllama-3" });
        check("/v1/responses/resp_1", Endpoint::ResponseById { id: "resp_1" });
        check("/v1/responses/resp_1/cancel", Endpoint::ResponseById { id: "resp_1" });
        check("/v1/responses/resp_1/input_items/", Endpoint::ResponseById { id: "resp_1" });
        check_v2("/v2/models/m", "m", None, "");
        check_v2("/v2/models/m/infer", "m", None, "infer");
        check_v2("/v2/models/m/generate_stream/", "m", None, "generate_stream");
        check_v2("/v2/models/m/versions/2", "m", Some("2"), "");
        check_v2("/v2/models/m/versions/2/infer", "m", Some("2"), "infer");
        check_v2("/v2/models/a%20b/ready", "a%20b", None, "ready");
    }

    #[test]
    fn what_a_lenient_server_may_read_as_another_path_is_no_endpoint() {
        for path in [
            "",
            "/",
            "//",
            "v1/models",
            "//v1/models",
            "/v1//models",
            "/V1/models",
            "/v1/chat%2Fcompletions",
            "/v1/ch%61t/completions",
            "/v1/./models",
            "/v1/models/..",
            "/v1/models/../chat/completions",
            "/v1/models/.",
            "/v1/models/a//b",
            "/v1/models/%2e%2E/chat/completions",
            "/v1/models/a%2F..%2Fb",
            "/v1/models/%2f",
            "/v1/models/a\\..\\b",
            "/v1/models/a%5C..",
            "/v1/models/a%00",
            "/v1/models/a%0a",
            "/v1/models/a%3Fb",
            "/v1/models/a%",
            "/v1/models/a%zz",
            "/v1/models/%ff",
            "/v1/models/a;b",
            "/v1/responses/a%2Fb",
            "/v1/responses/resp_1/delete",
            "/v1/responses/resp_1/cancel/x",
            "/v1/responses/..",
            "/v2/models",
            "/v2/models/",
            "/v2/models/a%2Fb/infer",
            "/v2/models/a%2fb/infer",
            "/v2/models/../infer",
            "/v2/models/m/in%66er",
            "/v2/models/m/infer/x",
            "/v2/models/m/versions",
            "/v2/models/m/versions/1/infer/x",
            "/v2/models/m/INFER",
            "/v2x",
            "/v2/repository/index",
            "/metrics",
            "/v1/chat/completions/../models",
        ] {
            check(path, Endpoint::Other);
        }
    }

    #[test]
    fn the_family_of_an_endpoint_decides_how_errors_look() {
        assert_eq!(Endpoint::ChatCompletions.protocol(), Protocol::OpenAi);
        assert_eq!(Endpoint::Rerank.protocol(), Protocol::OpenAi);
        assert_eq!(Endpoint::V2Ready.protocol(), Protocol::KServeV2);
        assert_eq!(Endpoint::classify("/v2/models/m/infer").protocol(), Protocol::KServeV2);
        assert_eq!(Endpoint::Other.protocol(), Protocol::Raw);
        assert_eq!(Protocol::of_path("/v1/nope"), Protocol::OpenAi);
        assert_eq!(Protocol::of_path("//v2/nope"), Protocol::KServeV2);
        assert_eq!(Protocol::of_path("/v10/nope"), Protocol::Raw);
        for path in
            ["/v2/embed", "/v2/rerank", "/v2/chat", "/invocations", "/pooling", "/tokenize/"]
        {
            assert_eq!(Protocol::of_path(path), Protocol::OpenAi, "{path}");
        }
        assert_eq!(Protocol::of_path(""), Protocol::Raw);
        for path in ["/v1/messages", "/v1/messages/", "/v1/messages/count_tokens", "/a/v1/messages"]
        {
            assert_eq!(Protocol::of_path(path), Protocol::Anthropic, "{path}");
        }
        assert_eq!(Protocol::of_path("/v1/messages2"), Protocol::OpenAi);
    }

    #[test]
    fn names_are_decoded_for_look_ups() {
        assert_eq!(decode_name("meta%2Fllama").as_deref(), Some("meta/llama"));
        assert!(matches!(decode_name("plain"), Some(Cow::Borrowed("plain"))));
        assert_eq!(decode_name("%ff"), None);
    }

    proptest! {
        #[test]
        fn a_name_that_passes_stays_within_its_place(
            path in r"/v[12]/(models|responses)/[a-zA-Z./%25-9eEfF\\;]{0,12}",
        ) {
            let name = match Endpoint::classify(&path) {
                Endpoint::ModelById { model } => model,
                Endpoint::V2Model { model, .. } => model,
                Endpoint::ResponseById { id } => id,
                _ => return Ok(()),
            };
            let decoded = decode_name(name).unwrap();
            prop_assert!(!decoded.is_empty());
            let is_step = |part: &str| matches!(part, "" | "." | "..");
            prop_assert!(!decoded.split(['/', '\\']).any(is_step), "{path}");
            prop_assert!(path.starts_with("/v1/models/") || !decoded.contains('/'), "{path}");
        }

        #[test]
        fn no_path_makes_it_panic(path in any::<String>()) {
            let is_absolute = path.starts_with('/');
            prop_assert!(is_absolute || Endpoint::classify(&path) == Endpoint::Other);
        }
    }
}
