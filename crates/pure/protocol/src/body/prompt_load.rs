//! Estimate of the prompt tokens of a request, before an engine has counted them.

use std::ops::Range;

use super::{DOCUMENTS, EMBEDDINGS, Facts, PromptKind, QUERIES};
use crate::prompt::{elements, embedding_tokens, has_server_tools, weighed_bytes};

/// Bytes of a prompt's JSON text that count as one token.
const TOKEN_BYTES: u64 = 4;

/// Prompts that a request gives an engine to read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PromptLoad {
    /// Estimated tokens of all prompts together: one per four bytes of text, one per number in lists
    /// of token numbers, and far fewer for images, files and embeddings of that length.
    pub tokens: u64,
    /// Number of prompts, each of which gets its own answer; at least 1.
    pub prompts: u64,
    /// Number of texts that the engine puts together and reads: a prompt, or a query with a
    /// document; at least 1.
    pub readings: u64,
}

impl Facts<'_> {
    /// Estimates the prompts in `body`, which must be the body that these facts were read from.
    /// `prompt_bytes` is the number of bytes that [`crate::read_prompt`] handed out, with each image
    /// or file counted as text of as many tokens.
    #[must_use]
    pub fn prompt_load(&self, body: &[u8], prompt_bytes: u64) -> PromptLoad {
        let (first, prompts) = self.first_load(body, prompt_bytes);
        let weigh =
            |range: &Option<Range<usize>>| range.as_ref().map_or(0, |range| tokens_in(body, range));
        let embeddings = self.texts[EMBEDDINGS].iter().flatten();
        let embeddings = embeddings.map(|range| embedding_tokens(&body[range.clone()]));
        let others = [&self.texts[..EMBEDDINGS.start], &self.texts[EMBEDDINGS.end..]];
        let others = others.into_iter().flatten().map(weigh);
        let texts = others.chain(embeddings).fold(0, u64::saturating_add);
        let queries = self.texts[QUERIES].iter().map(weigh).fold(0, u64::saturating_add);
        let is_query = self.prompt_kind == Some(PromptKind::Query);
        let query = queries.saturating_add(if is_query { first } else { 0 });
        // A query is read once with each document; the sum has it once already.
        let documents = self.texts[DOCUMENTS].iter().flatten();
        let pairs: u64 = documents.map(|range| elements(body, range)).sum();
        let repeated = query.saturating_mul(pairs.saturating_sub(1));
        let tokens = first.saturating_add(texts).saturating_add(repeated);
        // No known field has a prompt, so the whole body may be read.
        let tokens = if tokens == 0 { tokens_in(body, &(0..body.len())) } else { tokens };
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
        // A list of strings, of token lists or of conversations has several prompts; a list of
        // messages is one.
        let are_several = match kind {
            PromptKind::Messages => first == Some(&b'['),
            PromptKind::Prompt | PromptKind::Input | PromptKind::Query => {
                matches!(first, Some(b'"' | b'['))
            }
        };
        let are_numbers = is_list && matches!(first, Some(b'0'..=b'9'));
        let prompts = if is_list && are_several { elements(body, &range).max(1) } else { 1 };
        let is_conversation = !(is_list && are_several || are_numbers) && prompt_bytes > 0;
        let listed = || tokens_in(body, &range);
        let tokens = match is_conversation {
            true => prompt_bytes.div_ceil(TOKEN_BYTES),
            // Tools and a template stand before the numbers, too.
            false if are_numbers => {
                let others = prompt_bytes.saturating_sub(value.len() as u64);
                listed().saturating_add(others.div_ceil(TOKEN_BYTES))
            }
            false if is_numeric(value) => listed(),
            // Tools and a template stand before each prompt.
            false => listed().max(prompt_bytes.div_ceil(TOKEN_BYTES)),
        };
        (tokens, prompts)
    }
}

/// Estimates the tokens of a value: one for each number if it is a list of numbers, else by its bytes.
fn tokens_in(body: &[u8], range: &Range<usize>) -> u64 {
    let value = &body[range.clone()];
    match is_numeric(value) {
        true => memchr::memchr_iter(b',', value).count() as u64 + 1,
        false => weighed_bytes(body, range, TOKEN_BYTES).div_ceil(TOKEN_BYTES),
    }
}

/// Returns true for a list without text, such as one of token numbers or one of such lists.
fn is_numeric(value: &[u8]) -> bool {
    value.first() == Some(&b'[') && memchr::memchr2(b'"', b'{', value).is_none()
}

#[cfg(test)]
#[path = "prompt_load_test.rs"]
mod tests;
