//! What the gateway learns from a replica's JSON without reading all of it.
//!
//! Both searches rest on one property of JSON: inside a string every quote has a backslash before
//! it, so `"usage"` followed by a colon can only be a key, never a part of what a model wrote.

use std::sync::LazyLock;

use memchr::memmem::{Finder, FinderRev};
use serde::Deserialize;

/// Tokens of one request as the engine counted them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Tokens of the prompt, cached or not.
    pub prompt_tokens: u64,
    /// Tokens generated; 0 where nothing is generated.
    pub completion_tokens: u64,
    /// How many of the prompt's tokens were in the engine's cache; `None` if it doesn't say.
    pub cached_tokens: Option<u64>,
}

const USAGE_KEY: &[u8] = b"\"usage\"";
static USAGE: LazyLock<Finder<'static>> = LazyLock::new(|| Finder::new(USAGE_KEY));
static USAGE_REVERSE: LazyLock<FinderRev<'static>> = LazyLock::new(|| FinderRev::new(USAGE_KEY));
static ID: LazyLock<Finder<'static>> = LazyLock::new(|| Finder::new(b"\"id\""));

/// A reply made of nested, unfinished usage objects would be read once for each of them.
const TRIES_MAX: usize = 8;

/// The last usage object in a JSON reply, in the end of one, or in an event. Reads the names of
/// chat and completions and those of the Responses API.
#[must_use]
pub fn usage_in(bytes: &[u8]) -> Option<Usage> {
    USAGE_REVERSE.rfind_iter(bytes).take(TRIES_MAX).find_map(|at| {
        let value = member_value(&bytes[at + USAGE_KEY.len()..])?;
        read_usage(value)
    })
}

/// Whether [`usage_in`] is worth calling; much faster where the answer is no.
pub(crate) fn may_have_usage(bytes: &[u8]) -> bool {
    USAGE.find(bytes).is_some()
}

/// The id of a stored response: the first `id` that begins with `resp`, in a reply of the
/// Responses API or in its `response.created` event.
#[must_use]
pub fn response_id_in(bytes: &[u8]) -> Option<&str> {
    ID.find_iter(bytes).find_map(|at| {
        let value = member_value(&bytes[at + 4..])?.strip_prefix(b"\"")?;
        let is_of_id =
            |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'.');
        let length = value.iter().take_while(|byte| is_of_id(byte)).count();
        let id = &value[..length];
        let is_response = id.starts_with(b"resp") && value.get(length) == Some(&b'"');
        is_response.then(|| std::str::from_utf8(id).ok())?
    })
}

/// What follows a key's colon.
fn member_value(after_key: &[u8]) -> Option<&[u8]> {
    Some(after_key.trim_ascii_start().strip_prefix(b":")?.trim_ascii_start())
}

fn read_usage(value: &[u8]) -> Option<Usage> {
    if !value.starts_with(b"{") {
        return None;
    }
    // Reads one value and leaves what comes after it alone.
    let fields = UsageFields::deserialize(&mut serde_json::Deserializer::from_slice(value)).ok()?;
    let prompt_tokens = fields.prompt_tokens.or(fields.input_tokens);
    let completion_tokens = fields.completion_tokens.or(fields.output_tokens);
    if prompt_tokens.is_none() && completion_tokens.is_none() {
        return None;
    }
    let details = fields.prompt_tokens_details.or(fields.input_tokens_details);
    Some(Usage {
        prompt_tokens: prompt_tokens.unwrap_or(0),
        completion_tokens: completion_tokens.unwrap_or(0),
        cached_tokens: details.and_then(|details| details.cached_tokens),
    })
}

#[derive(Deserialize)]
struct UsageFields {
    prompt_tokens: Option<u64>,
    input_tokens: Option<u64>,
    completion_tokens: Option<u64>,
    output_tokens: Option<u64>,
    prompt_tokens_details: Option<Details>,
    input_tokens_details: Option<Details>,
}

#[derive(Deserialize)]
struct Details {
    cached_tokens: Option<u64>,
}
