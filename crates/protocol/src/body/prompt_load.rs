//! Estimate of the prompt tokens of a request, before an engine has counted them.

use std::ops::Range;

use super::{DOCUMENTS, Facts, PromptKind, QUERIES};
use crate::prompt::{elements, has_server_tools};

/// Bytes of a prompt's JSON text that count as one token.
const TOKEN_BYTES: u64 = 4;

/// Prompts that a request gives an engine to read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PromptLoad {
    /// Estimated tokens of all prompts together: one per four bytes of text, or one per number in
    /// lists of token numbers.
    pub tokens: u64,
    /// Number of prompts, each of which gets its own answer; at least 1.
    pub prompts: u64,
    /// Number of texts that the engine puts together and reads: a prompt, or a query with a
    /// document; at least 1.
    pub readings: u64,
}

impl Facts<'_> {
    /// Estimates the prompts in `body`, which must be the body that these facts were read from.
    /// `prompt_bytes` is the number of bytes that [`crate::read_prompt`] handed out, with images
    /// counted as the text they are worth.
    #[must_use]
    pub fn prompt_load(&self, body: &[u8], prompt_bytes: u64) -> PromptLoad {
        let (first, prompts) = self.first_load(body, prompt_bytes);
        let weigh =
            |range: &Option<Range<usize>>| range.clone().map_or(0, |range| tokens_in(&body[range]));
        let texts = self.texts.iter().map(weigh).fold(0, u64::saturating_add);
        let queries = self.texts[QUERIES].iter().map(weigh).fold(0, u64::saturating_add);
        let is_query = self.prompt_kind == Some(PromptKind::Query);
        let query = queries.saturating_add(if is_query { first } else { 0 });
        // A query is read once with each document; the sum has it once already.
        let documents = self.texts[DOCUMENTS].iter().flatten();
        let pairs: u64 = documents.map(|range| elements(body, range)).sum();
        let repeated = query.saturating_mul(pairs.saturating_sub(1));
        let tokens = first.saturating_add(texts).saturating_add(repeated);
        // No known field has a prompt, so the whole body may be read.
        let tokens = if tokens == 0 { (body.len() as u64).div_ceil(TOKEN_BYTES) } else { tokens };
        PromptLoad { tokens, prompts, readings: pairs.max(prompts) }
    }

    /// Returns true if the engine may run tools itself and read what they return. `body` must be the
    /// body that these facts were read from.
    #[must_use]
    pub fn has_server_tools(&self, body: &[u8]) -> bool {
        self.tools.as_ref().is_some_and(|tools| has_server_tools(body, tools))
    }

    fn first_load(&self, body: &[u8], prompt_bytes: u64) -> (u64, u64) {
        let Some((range, kind)) = self.prompt.clone().zip(self.prompt_kind) else { return (0, 1) };
        let value = &body[range.clone()];
        let first = value.get(1..).map(<[u8]>::trim_ascii_start).and_then(<[u8]>::first);
        let is_list = value.first() == Some(&b'[');
        // A list of strings or of token lists has several prompts; a list of messages is one.
        let are_several = kind != PromptKind::Messages && matches!(first, Some(b'"' | b'['));
        let are_numbers = matches!(first, Some(b'0'..=b'9'));
        let prompts = if is_list && are_several { elements(body, &range).max(1) } else { 1 };
        let is_conversation = !(is_list && (are_several || are_numbers)) && prompt_bytes > 0;
        let tokens = match is_conversation {
            true => prompt_bytes.div_ceil(TOKEN_BYTES),
            // Tools and a template stand before each prompt.
            false => tokens_in(value).max(prompt_bytes.div_ceil(TOKEN_BYTES)),
        };
        (tokens, prompts)
    }
}

/// Estimates the tokens of a value: by its bytes, or by its numbers if it is a list of numbers.
fn tokens_in(value: &[u8]) -> u64 {
    let by_bytes = (value.len() as u64).div_ceil(TOKEN_BYTES);
    if value.first() != Some(&b'[') || memchr::memchr2(b'"', b'{', value).is_some() {
        return by_bytes;
    }
    // One token per number, which may have fewer than four bytes.
    by_bytes.max(memchr::memchr_iter(b',', value).count() as u64 + 1)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::{read_facts, read_prompt};

    #[track_caller]
    fn check(body: &Value, tokens: Range<u64>, prompts: u64) {
        let body = body.to_string();
        let facts = read_facts(body.as_bytes()).unwrap();
        let mut bytes = 0;
        read_prompt(&facts, body.as_bytes(), |piece| {
            let (crate::PromptPiece::Text(text) | crate::PromptPiece::Blob(text)) = piece;
            bytes += text.len() as u64;
        });
        let load = facts.prompt_load(body.as_bytes(), bytes);
        assert!(tokens.contains(&load.tokens), "{load:?} of {body}");
        assert_eq!(load.prompts, prompts, "{body}");
    }

    #[test]
    fn every_prompt_of_a_request_counts() {
        let text = "x".repeat(400);
        check(&json!({"messages": [{"role": "user", "content": text}]}), 100..120, 1);
        check(&json!({"prompt": text}), 100..103, 1);
        check(&json!({"prompt": [text, text, text]}), 300..320, 3);
        check(&json!({"prompt": vec![7; 500]}), 500..501, 1);
        check(&json!({"prompt": [vec![7; 500], vec![8; 20]]}), 520..523, 2);
        check(&json!({"input": [text, text]}), 200..210, 2);
        check(&json!({"input": [{"role": "user", "content": text}]}), 100..120, 1);
        check(&json!({"input": text, "previous_response_id": "resp_1"}), 100..103, 1);
    }

    #[test]
    fn tools_of_the_server_are_told_from_those_of_the_client() {
        let client = json!({"type": "function", "name": "f", "parameters": {}});
        let anthropic = json!({"name": "f", "input_schema": {}});
        let server = json!({"type": "web_search"});
        for (tools, expected) in [
            (json!(null), false),
            (json!([]), false),
            (json!([client, anthropic]), false),
            (json!([{"type": "custom", "name": "patch"}]), false),
            (json!([client, server]), true),
        ] {
            let body = json!({"input": "x", "tools": tools}).to_string();
            let facts = read_facts(body.as_bytes()).unwrap();
            assert_eq!(facts.has_server_tools(body.as_bytes()), expected, "{body}");
        }
    }

    #[test]
    fn a_query_is_read_with_each_document() {
        let text = "x".repeat(400);
        check(&json!({"query": text, "documents": ["a", "b", "c"]}), 300..310, 1);
        check(&json!({"text_1": text, "text_2": ["a", "b", "c", "d"]}), 400..420, 1);
        check(&json!({"query": text, "items": [text, text]}), 400..410, 1);
    }

    #[test]
    fn each_text_that_an_engine_puts_together_is_a_reading() {
        for (body, expected) in [
            (json!({"prompt": "a"}), 1),
            (json!({"input": ["a", "b", "c"]}), 3),
            (json!({"query": "q", "documents": ["a", "b"]}), 2),
            (json!({"text_1": "q", "text_2": "a"}), 1),
            (json!({"model": "m"}), 1),
        ] {
            let body = body.to_string();
            let facts = read_facts(body.as_bytes()).unwrap();
            assert_eq!(facts.prompt_load(body.as_bytes(), 0).readings, expected, "{body}");
        }
    }

    #[test]
    fn what_is_no_text_or_not_known_counts_too() {
        let text = "x".repeat(400);
        let hello = json!([{"role": "user", "content": "hi"}]);
        check(&json!({"messages": hello, "input_ids": vec![1; 1_000]}), 1_000..1_020, 1);
        check(&json!({"messages": hello, "documents": [text]}), 100..120, 1);
        check(&json!({"prompt_embeds": text}), 100..103, 1);
        check(&json!({"model": "m", "something": text}), 100..120, 1);
    }
}
