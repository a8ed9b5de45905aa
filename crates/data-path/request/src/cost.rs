//! Tokens that a request may use, as far as they are known before it is served.

use http::Method;
use http::request::Parts;
use spillway_protocol::{Endpoint, ErrorKind, Facts, GatewayError, V2Facts, is_messages};
use spillway_usage::{
    MEDIA_TOKEN_BYTES, REPORTED_TOKENS_MAX, ReplyKind, RequestTokens, TOKEN_BYTES,
};

use crate::prompt::Prompt;

/// Prompt tokens that an engine may add to each text that it reads: a chat template, or the server's
/// own system prompt.
const TEMPLATE_TOKENS_MAX: u64 = 4_096;

/// Upper bound of the tokens that a request may use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cost {
    /// Estimated tokens of the prompt.
    pub prompt_tokens: u64,
    /// Most tokens of the prompt that a replica can report and be believed.
    prompt_tokens_max: u64,
    /// Number of answers to generate.
    answers: u64,
    output: OutputLimit,
    reply: ReplyKind,
    /// True if the server may run tools itself, and generate again with what they return.
    has_server_tools: bool,
}

/// Bound of the length of one answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum OutputLimit {
    /// Nothing is generated.
    #[default]
    None,
    /// At most this number of tokens.
    AtMost(u32),
    /// This number of tokens at engines that convert it, and no bound at those that ignore it.
    Converted(u32),
    /// The usual length: the request sets no bound.
    Usual,
    /// No bound is known before the reply. The text explains to the client why, and what to do.
    Unknown(&'static str),
}

impl Cost {
    /// Returns the cost of a request whose JSON body was read; `prompt_bytes` of it are hashed
    /// prompts.
    pub fn of_json(path: &str, facts: &Facts<'_>, body: &[u8], prompt: &Prompt) -> Self {
        let endpoint = Endpoint::classify(path);
        let load = facts.prompt_load(body, u64::from(prompt.bytes));
        // Engines may run tools of their own in these APIs alone.
        let is_agentic = || path.trim_end_matches('/').ends_with("/responses") || is_messages(path);
        let has_server_tools =
            facts.tools.is_some() && is_agentic() && facts.has_server_tools(body);
        let output = match facts.max_tokens {
            _ if counts_tokens(path) => OutputLimit::None,
            _ if facts.is_unbounded => OutputLimit::Unknown(
                "Under a limit on tokens, the longest answer and the number of answers must be whole \
                 numbers that are not negative.",
            ),
            Some(tokens) if facts.is_converted => OutputLimit::Converted(tokens),
            Some(tokens) => OutputLimit::AtMost(tokens),
            None if generates(endpoint, path) => OutputLimit::Usual,
            None => OutputLimit::None,
        };
        let reply = reply_kind(endpoint, path, output);
        // A custom path may have its prompt in a field that is not known here.
        let is_unknown = endpoint == Endpoint::Other && facts.prompt.is_none();
        let is_elsewhere = prompt.has_media || facts.has_stored_text || has_server_tools;
        let prompt_tokens_max = match is_unknown || is_elsewhere {
            true => REPORTED_TOKENS_MAX,
            false => prompt_tokens_max(body.len(), load.readings).max(load.tokens),
        };
        let answers = u64::from(facts.answers).saturating_mul(load.prompts);
        let prompt_tokens = load.tokens;
        Self { prompt_tokens, prompt_tokens_max, answers, output, reply, has_server_tools }
    }

    /// Returns the cost of an upload of this many bytes.
    pub fn of_upload(bytes: usize) -> Self {
        Self {
            prompt_tokens: (bytes as u64).div_ceil(MEDIA_TOKEN_BYTES),
            prompt_tokens_max: prompt_tokens_max(bytes, 1),
            answers: 1,
            output: OutputLimit::Usual,
            reply: ReplyKind::Text,
            has_server_tools: false,
        }
    }

    /// Returns the cost of a request about a stored response: nothing, apart from what the reply
    /// reports, since a response that was generated in the background reports its usage only then.
    pub fn of_stored() -> Self {
        Self { prompt_tokens_max: REPORTED_TOKENS_MAX, ..Self::default() }
    }

    /// Returns the cost of a request whose body is not read for its prompt; `bytes` is its length,
    /// `None` if unknown.
    pub fn of_unread(head: &Parts, bytes: Option<u64>) -> Self {
        let reply = ReplyKind::Opaque;
        // Requests without a body cost no tokens.
        if [Method::GET, Method::HEAD, Method::OPTIONS, Method::DELETE].contains(&head.method) {
            return Self { reply, ..Self::default() };
        }
        let output = match bytes {
            Some(_) => OutputLimit::Usual,
            None => OutputLimit::Unknown(
                "Under a limit on tokens a body that is not read must say its length: send \
                 content-length.",
            ),
        };
        let prompt_tokens = bytes.unwrap_or_default().div_ceil(TOKEN_BYTES);
        Self { prompt_tokens, answers: 1, output, reply, ..Self::default() }
    }

    /// Applies the parameters that were read from a V2 request.
    pub fn with_parameters(self, facts: &V2Facts) -> Self {
        let output = match (facts.max_tokens, self.output) {
            _ if facts.is_unbounded => OutputLimit::Unknown(
                "Under a limit on tokens the longest answer must be a whole number of tokens.",
            ),
            (Some(tokens), OutputLimit::Usual) => OutputLimit::AtMost(tokens),
            (_, output) => output,
        };
        Self { answers: u64::from(facts.answers), output, ..self }
    }

    /// Returns the cost of a V2 request whose body is compressed: unknown, and estimated by its
    /// compressed length, if that is known.
    pub fn of_compressed(bytes: Option<u64>) -> Self {
        let output = OutputLimit::Unknown(
            "A limit on tokens allows no compressed bodies: send the body as it is.",
        );
        let prompt_tokens = bytes.unwrap_or_default().div_ceil(TOKEN_BYTES);
        Self { prompt_tokens, output, reply: ReplyKind::Opaque, ..Self::default() }
    }

    /// Returns the cost of a gRPC call that may have any number of messages: unknown.
    pub fn of_stream() -> Self {
        Self {
            output: OutputLimit::Unknown(
                "A limit on tokens allows no calls with a stream of requests: call ModelInfer, or \
                 generate_stream over HTTP.",
            ),
            reply: ReplyKind::Opaque,
            ..Self::default()
        }
    }

    /// Returns the number of answers to generate, to all prompts of the request together; at least 1.
    pub(crate) fn answers(&self) -> u32 {
        u32::try_from(self.answers).unwrap_or(u32::MAX).max(1)
    }

    /// Returns the most tokens that the request may use, if an answer usually has at most `usual`
    /// tokens.
    pub fn tokens(&self, usual: impl FnOnce() -> u32) -> u64 {
        let output = match self.output {
            OutputLimit::None | OutputLimit::Unknown(_) => 0,
            OutputLimit::AtMost(tokens) | OutputLimit::Converted(tokens) => tokens,
            OutputLimit::Usual => usual(),
        };
        self.prompt_tokens.saturating_add(u64::from(output).saturating_mul(self.answers.max(1)))
    }

    /// Returns what is known of the request's tokens, to bill them when it has ended.
    pub fn request_tokens(&self) -> RequestTokens {
        let completion_max = match self.output {
            // Each round of tools may generate as much again.
            _ if self.has_server_tools => REPORTED_TOKENS_MAX,
            OutputLimit::AtMost(tokens) => u64::from(tokens).saturating_mul(self.answers.max(1)),
            OutputLimit::None
            | OutputLimit::Converted(_)
            | OutputLimit::Usual
            | OutputLimit::Unknown(_) => REPORTED_TOKENS_MAX,
        };
        RequestTokens {
            prompt: self.prompt_tokens,
            prompt_max: self.prompt_tokens_max,
            completion_max: completion_max.min(REPORTED_TOKENS_MAX),
            reply: self.reply,
        }
    }

    /// Checks that the cost is known.
    ///
    /// # Errors
    /// Returns an error if the cost is unknown; it matters only where a limit on tokens applies.
    pub fn check(&self) -> Result<(), GatewayError> {
        match self.output {
            OutputLimit::Unknown(why) => Err(GatewayError::new(ErrorKind::BadRequest, why)),
            OutputLimit::None
            | OutputLimit::AtMost(_)
            | OutputLimit::Converted(_)
            | OutputLimit::Usual => Ok(()),
        }
    }
}

/// Returns the most prompt tokens that a replica can report and be believed, for a body of these
/// bytes with so many texts: no token has less than a byte.
fn prompt_tokens_max(body_bytes: usize, readings: u64) -> u64 {
    let added = TEMPLATE_TOKENS_MAX.saturating_mul(readings);
    added.saturating_add(body_bytes as u64).min(REPORTED_TOKENS_MAX)
}

/// Returns the kind of an endpoint's replies.
fn reply_kind(endpoint: Endpoint<'_>, path: &str, output: OutputLimit) -> ReplyKind {
    let path = path.trim_end_matches('/');
    let is_one_of = |ends: &[&str]| ends.iter().any(|end| path.ends_with(end));
    match (endpoint, output) {
        (Endpoint::ChatCompletions | Endpoint::Completions, _) => ReplyKind::Text,
        _ if counts_tokens(path) => ReplyKind::Count,
        (Endpoint::JsonPassthrough, _) if is_one_of(&["/tokenize", "/detokenize"]) => {
            ReplyKind::Count
        }
        (Endpoint::JsonPassthrough, _) if is_one_of(&["/audio/speech", "/images/generations"]) => {
            ReplyKind::Media
        }
        (_, OutputLimit::None) => ReplyKind::Scores,
        // The same endpoints behind a prefix of a route.
        _ if is_one_of(&["/embeddings", "/rerank", "/score", "/classify", "/pooling"]) => {
            ReplyKind::Scores
        }
        _ => ReplyKind::Text,
    }
}

/// Returns true if a path only counts the tokens of a prompt, though its body is that of a
/// generating request.
pub(crate) fn counts_tokens(path: &str) -> bool {
    let path = path.trim_end_matches('/');
    path.ends_with("/responses/input_tokens") || path.ends_with("/messages/count_tokens")
}

/// Returns true if an endpoint generates tokens, or may: custom routes are unknown.
fn generates(endpoint: Endpoint<'_>, path: &str) -> bool {
    match endpoint {
        Endpoint::Embeddings | Endpoint::Rerank => false,
        Endpoint::JsonPassthrough => {
            let path = path.trim_end_matches('/');
            let generating = [
                "/audio/speech",
                "/images/generations",
                "/responses/compact",
                "/chat/completions/batch",
                "/invocations",
            ];
            generating.iter().any(|end| path.ends_with(end))
        }
        _ => true,
    }
}

#[cfg(test)]
#[path = "cost_test.rs"]
mod tests;
