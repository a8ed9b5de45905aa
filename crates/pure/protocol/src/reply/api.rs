//! APIs whose replies are read.

/// API of a request, which decides where its reply has facts and what a whole reply is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum ReplyApi {
    /// Path `…/chat/completions`.
    Chat,
    /// Path `…/completions`.
    Completions,
    /// Path `…/responses`: creation of a response.
    Responses,
    /// Path `…/responses/{id}`, with or without `/cancel`: a response that was created before. Its
    /// reply has the form of [`Responses`](Self::Responses), but its state is not the reply's own.
    StoredResponse,
    /// Path `…/messages`: Anthropic's messages.
    Messages,
    /// Path `…/embeddings`.
    Embeddings,
    /// Path `…/rerank`.
    Rerank,
    /// Paths below `/v2/models`: inference of KServe V2, and the generate extension.
    KServeV2,
    /// Any other path. Facts are read wherever one of the APIs has them.
    #[default]
    Other,
}

/// Beginning of the paths of KServe V2 and the generate extension.
const KSERVE_V2: &str = "/v2/models/";

impl ReplyApi {
    /// Returns the API of a request path, without its query. A prefix before the API's own path and
    /// one trailing slash are tolerated.
    #[must_use]
    pub fn of_path(path: &str) -> Self {
        let path = path.strip_suffix('/').unwrap_or(path);
        if path.ends_with("/chat/completions") && !path.starts_with(KSERVE_V2) {
            // Nearly all requests have it.
            return Self::Chat;
        }
        let mut segments = path.rsplit('/');
        let [last, before, third] = std::array::from_fn(|_| segments.next().unwrap_or_default());
        match (before, last) {
            _ if path.starts_with(KSERVE_V2) => Self::KServeV2,
            (_, "completions") => Self::Completions,
            (_, "responses") => Self::Responses,
            // These two are named like ids, and answer in forms of their own.
            ("responses", "input_tokens" | "compact") => Self::Other,
            ("responses", _) => Self::StoredResponse,
            (_, "cancel") if third == "responses" => Self::StoredResponse,
            (_, "messages") => Self::Messages,
            (_, "embeddings") => Self::Embeddings,
            (_, "rerank") => Self::Rerank,
            _ => Self::Other,
        }
    }

    /// Returns true if a reply has generated content and a reason why it ended.
    #[must_use]
    pub fn generates(self) -> bool {
        matches!(self, Self::Chat | Self::Completions | Self::Responses | Self::Messages)
    }

    /// Returns true if events may be those of the Responses API.
    pub(super) fn has_responses(self) -> bool {
        matches!(self, Self::Responses | Self::StoredResponse | Self::Other)
    }

    /// Returns true if replies may be messages of Anthropic's API.
    pub(super) fn has_messages(self) -> bool {
        matches!(self, Self::Messages | Self::Other)
    }

    /// Returns true if the data of events may have their names, as `type`.
    pub(super) fn names_events(self) -> bool {
        self.has_responses() || self.has_messages()
    }

    /// Returns true if replies may have choices.
    pub(super) fn has_choices(self) -> bool {
        matches!(self, Self::Chat | Self::Completions | Self::Other)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(path: &str, expected: ReplyApi) {
        assert_eq!(ReplyApi::of_path(path), expected, "{path}");
        assert_eq!(ReplyApi::of_path(&format!("{path}/")), expected, "{path}/");
        if !path.starts_with("/v2") {
            assert_eq!(ReplyApi::of_path(&format!("/prefix{path}")), expected, "/prefix{path}");
        }
    }

    #[test]
    fn paths_belong_to_their_apis_behind_any_prefix() {
        check("/v1/chat/completions", ReplyApi::Chat);
        check("/chat/completions", ReplyApi::Chat);
        check("/v1/completions", ReplyApi::Completions);
        check("/v1/responses", ReplyApi::Responses);
        check("/v1/responses/resp_1", ReplyApi::StoredResponse);
        check("/v1/responses/resp_1/cancel", ReplyApi::StoredResponse);
        check("/v1/messages", ReplyApi::Messages);
        check("/v1/embeddings", ReplyApi::Embeddings);
        check("/rerank", ReplyApi::Rerank);
        check("/v2/rerank", ReplyApi::Rerank);
        check("/v2/models/m/infer", ReplyApi::KServeV2);
        check("/v2/models/chat/completions", ReplyApi::KServeV2);
        check("/v2/models/m/versions/1/generate_stream", ReplyApi::KServeV2);
    }

    #[test]
    fn paths_that_only_resemble_them_are_others() {
        for path in [
            "/v1/messages/count_tokens",
            "/v1/responses/input_tokens",
            "/v1/responses/compact",
            "/v1/responses/resp_1/input_items",
            "/v1/chat/completions/batch",
            "/v1/models",
            "/v2/embed",
            "/generate",
            "",
        ] {
            check(path, ReplyApi::Other);
        }
    }

    #[test]
    fn an_api_has_the_form_of_its_replies() {
        use ReplyApi::{Chat, Completions, Embeddings, Messages, Other, Responses, StoredResponse};
        let of = |is: fn(ReplyApi) -> bool| {
            [Chat, Completions, Responses, StoredResponse, Messages, Embeddings, Other].map(is)
        };
        assert_eq!(of(ReplyApi::generates), [true, true, true, false, true, false, false]);
        assert_eq!(of(ReplyApi::has_choices), [true, true, false, false, false, false, true]);
        assert_eq!(of(ReplyApi::has_responses), [false, false, true, true, false, false, true]);
        assert_eq!(of(ReplyApi::has_messages), [false, false, false, false, true, false, true]);
    }
}
