//! Upper bound of the tokens that a request may use, known before it is served.

use http::Method;
use http::request::Parts;
use spillway_protocol::{Endpoint, ErrorKind, Facts, GatewayError, V2Facts};

/// Bytes of an unread request that count as one token.
const TOKEN_BYTES: u64 = 4;
/// Bytes of an upload that count as one token: sound has far fewer tokens than text.
const UPLOAD_TOKEN_BYTES: u64 = 64;

/// Upper bound of the tokens that a request may use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cost {
    /// Estimated tokens of the prompt.
    pub prompt_tokens: u64,
    /// Number of answers to generate.
    answers: u64,
    output: OutputLimit,
}

/// Bound of the length of one answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum OutputLimit {
    /// Nothing is generated.
    #[default]
    None,
    /// At most this number of tokens.
    AtMost(u32),
    /// The usual length: the request sets no bound.
    Usual,
    /// No bound is known beforehand; the text tells the client why and what to do.
    Unknown(&'static str),
}

impl Cost {
    /// Returns the cost of a request whose JSON body was read; `prompt_bytes` of it are hashed
    /// prompts.
    pub fn of_json(
        endpoint: Endpoint<'_>,
        path: &str,
        facts: &Facts<'_>,
        body: &[u8],
        prompt_bytes: u32,
    ) -> Self {
        let load = facts.prompt_load(body, u64::from(prompt_bytes));
        let output = match facts.max_tokens {
            _ if counts_tokens(path) => OutputLimit::None,
            _ if facts.is_unbounded => OutputLimit::Unknown(
                "A negative number for the longest answer means no limit, which a limit on tokens \
                 does not allow: say how many tokens it may have.",
            ),
            Some(tokens) => OutputLimit::AtMost(tokens),
            None if generates(endpoint, path) => OutputLimit::Usual,
            None => OutputLimit::None,
        };
        let answers = u64::from(facts.answers).saturating_mul(load.prompts);
        Self { prompt_tokens: load.tokens, answers, output }
    }

    /// Returns the cost of an upload of this many bytes.
    pub fn of_upload(bytes: usize) -> Self {
        let prompt_tokens = (bytes as u64).div_ceil(UPLOAD_TOKEN_BYTES);
        Self { prompt_tokens, answers: 1, output: OutputLimit::Usual }
    }

    /// Returns the cost of a request whose body is not read for its prompt; `bytes` is its length,
    /// `None` if unknown.
    pub fn of_unread(head: &Parts, bytes: Option<u64>) -> Self {
        // Requests without a body cost no tokens.
        if [Method::GET, Method::HEAD, Method::OPTIONS, Method::DELETE].contains(&head.method) {
            return Self::default();
        }
        let Some(bytes) = bytes else {
            return Self {
                output: OutputLimit::Unknown(
                    "Under a limit on tokens a body that is not read must say its length: send \
                     content-length.",
                ),
                ..Self::default()
            };
        };
        let prompt_tokens = bytes.div_ceil(TOKEN_BYTES);
        Self { prompt_tokens, answers: 1, output: OutputLimit::Usual }
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

    /// Returns the cost of a V2 request whose body is compressed: unknown.
    pub fn of_compressed() -> Self {
        let output = OutputLimit::Unknown(
            "A limit on tokens allows no compressed bodies: send the body as it is.",
        );
        Self { output, ..Self::default() }
    }

    /// Returns the cost of a gRPC call that may have any number of messages: unknown.
    pub fn of_stream() -> Self {
        Self {
            output: OutputLimit::Unknown(
                "A limit on tokens allows no calls with a stream of requests: call ModelInfer, or \
                 generate_stream over HTTP.",
            ),
            ..Self::default()
        }
    }

    /// Returns the most tokens that the request may use, if an answer usually has at most `usual`
    /// tokens.
    pub fn tokens(&self, usual: impl FnOnce() -> u32) -> u64 {
        let output = match self.output {
            OutputLimit::None | OutputLimit::Unknown(_) => 0,
            OutputLimit::AtMost(tokens) => tokens,
            OutputLimit::Usual => usual(),
        };
        self.prompt_tokens.saturating_add(u64::from(output).saturating_mul(self.answers.max(1)))
    }

    /// Checks that the cost is known.
    ///
    /// # Errors
    /// Returns an error if the cost is unknown; it matters only where a limit on tokens applies.
    pub fn check(&self) -> Result<(), GatewayError> {
        match self.output {
            OutputLimit::Unknown(why) => Err(GatewayError::new(ErrorKind::BadRequest, why)),
            OutputLimit::None | OutputLimit::AtMost(_) | OutputLimit::Usual => Ok(()),
        }
    }
}

/// Returns true if a path only counts the tokens of a prompt, though its body is that of a
/// generating request.
fn counts_tokens(path: &str) -> bool {
    let path = path.trim_end_matches('/');
    path.ends_with("/responses/input_tokens") || path.ends_with("/messages/count_tokens")
}

/// Returns true if an endpoint generates tokens, or may: custom routes are unknown.
fn generates(endpoint: Endpoint<'_>, path: &str) -> bool {
    match endpoint {
        Endpoint::Embeddings | Endpoint::Rerank => false,
        Endpoint::JsonPassthrough => {
            let path = path.trim_end_matches('/');
            let generating = ["/audio/speech", "/images/generations", "/responses/compact"];
            generating.iter().any(|end| path.ends_with(end))
        }
        _ => true,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};
    use spillway_protocol::{read_facts, read_v2};

    use super::*;

    fn tokens(path: &str, body: &Value) -> Result<u64, GatewayError> {
        let body = body.to_string();
        let facts = read_facts(body.as_bytes()).unwrap();
        let endpoint = Endpoint::classify(path);
        let cost = Cost::of_json(endpoint, path, &facts, body.as_bytes(), 40);
        cost.check().map(|()| cost.tokens(|| 1_000))
    }

    fn messages(extra: Value) -> Value {
        let mut body = json!({"messages": [{"role": "user", "content": "hello"}]});
        body.as_object_mut().unwrap().extend(extra.as_object().unwrap().clone());
        body
    }

    #[test]
    fn the_largest_of_all_that_an_engine_could_make_of_it_is_charged() {
        let chat = |extra| tokens("/v1/chat/completions", &messages(extra)).unwrap();
        assert_eq!(chat(json!({})), 1_010);
        assert_eq!(chat(json!({"max_tokens": 900, "max_output_tokens": 1})), 910);
        assert_eq!(chat(json!({"max_output_tokens": 900, "max_completion_tokens": 1})), 910);
        assert_eq!(chat(json!({"max_tokens": 900, "n": 4, "best_of": 8})), 7_210);
        assert_eq!(chat(json!({"n": 3})), 3_010);
        let four = json!({"prompt": ["a", "b", "c", "d"], "max_tokens": 100, "n": 2});
        assert!((800..820).contains(&tokens("/v1/completions", &four).unwrap()));
        assert!(tokens("/v1/chat/completions", &messages(json!({"max_tokens": -1}))).is_err());
    }

    #[test]
    fn what_generates_nothing_costs_what_it_reads() {
        let text = "x".repeat(400);
        for (path, body) in [
            ("/v1/embeddings", json!({"input": [text, text]})),
            ("/v1/rerank", json!({"query": "q", "documents": [text, text]})),
            ("/v1/score", json!({"text_1": "q", "text_2": [text, text]})),
            ("/tokenize", json!({"model": "m", "words": [text, text]})),
            ("/v1/responses/input_tokens", json!({"input": [text, text], "max_output_tokens": 9})),
            ("/v1/messages/count_tokens", json!({"prompt": [text, text]})),
        ] {
            let tokens = tokens(path, &body).unwrap();
            assert!((200..230).contains(&tokens), "{path}: {tokens}");
        }
    }

    #[test]
    fn what_is_made_of_text_costs_an_answer() {
        let text = "x".repeat(400);
        for path in ["/v1/audio/speech", "/v1/audio/speech/", "/v1/images/generations"] {
            let tokens = tokens(path, &json!({"model": "m", "input": text})).unwrap();
            assert_eq!(tokens, 1_010, "{path}");
        }
    }

    #[test]
    fn bodies_that_are_not_read_cost_their_length_and_an_answer() {
        let head =
            |method| http::Request::builder().method(method).body(()).unwrap().into_parts().0;
        let post = head("POST");
        let cost = Cost::of_unread(&post, Some(400));
        assert_eq!(cost.tokens(|| 1_000), 1_100);
        let facts =
            read_v2(br#"{"text_input":"x","parameters":{"max_tokens":9000,"n":2}}"#).unwrap();
        assert_eq!(cost.with_parameters(&facts).tokens(|| 1_000), 18_100);
        let facts = read_v2(br#"{"max_tokens":"9000"}"#).unwrap();
        assert!(cost.with_parameters(&facts).check().is_err());
        assert!(Cost::of_unread(&post, None).check().is_err());
        assert!(Cost::of_stream().check().is_err());
        assert!(Cost::of_compressed().check().is_err());
        assert_eq!(Cost::of_upload(6_400).tokens(|| 1_000), 1_100);
        let cost = Cost::of_unread(&head("GET"), None);
        assert_eq!((cost.check().is_ok(), cost.tokens(|| 1_000)), (true, 0));
    }
}
