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
