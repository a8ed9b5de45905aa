//! Formats of replies.

use spillway_protocol::is_messages;

/// Formats of a reply's events and errors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flavour {
    /// `data:` chunks, as of chat/completions.
    OpenAi,
    /// Named events, as of /v1/responses.
    Responses,
    /// Named events, as of /v1/messages.
    Messages,
    /// Other events of OpenAI's API, e.g. of images, and events of unknown paths.
    OpenAiNamed,
    /// Events of KServe V2's generate extension.
    KServeV2,
    /// gRPC messages: no events, but trailers that always give the result.
    Grpc,
    /// Unknown events of a custom route.
    Raw,
}

impl Flavour {
    /// Returns the flavour of replies to JSON requests that name a model, by their path.
    pub fn of_json(path: &str) -> Self {
        let path = path.strip_suffix('/').unwrap_or(path);
        // SageMaker's path has bodies and replies of the completions APIs.
        if path.ends_with("/completions") || path.ends_with("/invocations") {
            Self::OpenAi
        } else if path.ends_with("/responses") {
            Self::Responses
        } else if is_messages(path) {
            Self::Messages
        } else {
            Self::OpenAiNamed
        }
    }

    /// Returns true if the gateway reads usage, ids or events from these replies, which must
    /// therefore come uncompressed.
    pub fn is_read(self) -> bool {
        match self {
            Self::OpenAi | Self::Responses | Self::Messages | Self::OpenAiNamed => true,
            Self::KServeV2 | Self::Grpc | Self::Raw => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_of_a_path_tells_the_format_also_behind_a_prefix() {
        for (path, expected) in [
            ("/v1/chat/completions", Flavour::OpenAi),
            ("/v1/completions/", Flavour::OpenAi),
            ("/team/v1/completions", Flavour::OpenAi),
            ("/invocations", Flavour::OpenAi),
            ("/v1/responses", Flavour::Responses),
            ("/team/responses/", Flavour::Responses),
            ("/v1/messages", Flavour::Messages),
            ("/v1/images/generations", Flavour::OpenAiNamed),
            ("/v1/embeddings", Flavour::OpenAiNamed),
            ("/v1/chat/completions/batch", Flavour::OpenAiNamed),
            ("/v1/mycompletions", Flavour::OpenAiNamed),
            ("/", Flavour::OpenAiNamed),
        ] {
            assert_eq!(Flavour::of_json(path), expected, "{path}");
            assert!(Flavour::of_json(path).is_read());
        }
        for passed in [Flavour::KServeV2, Flavour::Grpc, Flavour::Raw] {
            assert!(!passed.is_read(), "{passed:?}");
        }
    }
}
