//! Facts from a replica's JSON reply, found without parsing all of it.
//!
//! Both searches rest on one property of JSON: inside a string every quote has a backslash before
//! it, so `"usage"` followed by a colon can only be a key, never text that a model wrote.

use std::sync::LazyLock;

use memchr::memmem::{Finder, FinderRev};
use serde::Deserialize;

/// Token counts of one request, from the engine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Tokens of the prompt, cached or not.
    pub prompt_tokens: u64,
    /// Generated tokens; 0 if nothing is generated.
    pub completion_tokens: u64,
    /// Tokens of the prompt that were in the engine's cache; `None` if the engine does not report
    /// it.
    pub cached_tokens: Option<u64>,
}

const USAGE_KEY: &[u8] = b"\"usage\"";
static USAGE: LazyLock<Finder<'static>> = LazyLock::new(|| Finder::new(USAGE_KEY));
static USAGE_REVERSE: LazyLock<FinderRev<'static>> = LazyLock::new(|| FinderRev::new(USAGE_KEY));

/// Largest number of usage objects that are tried: a reply of nested, unfinished ones would be read
/// once for each of them.
const TRIES_MAX: usize = 8;

/// Returns the last usage object in a JSON reply, in the end of one, or in an event. Knows the
/// names of chat and completions, and those of the Responses API. `None` if there is none.
#[must_use]
pub fn usage_in(bytes: &[u8]) -> Option<Usage> {
    // The search from the end has no SIMD, so it is used only if there is something to find.
    if !may_have_usage(bytes) {
        return None;
    }
    USAGE_REVERSE.rfind_iter(bytes).take(TRIES_MAX).find_map(|at| {
        let value = member_value(&bytes[at + USAGE_KEY.len()..])?;
        read_usage(value)
    })
}

/// Returns false if [`usage_in`] finds nothing; much faster in that case.
pub(crate) fn may_have_usage(bytes: &[u8]) -> bool {
    USAGE.find(bytes).is_some()
}

/// Returns the id of a stored response if it begins with `resp`: the reply's own `id`, or that of
/// `response` in the event `response.created`. Other ids may come from the client, e.g. in
/// `metadata`, which engines repeat.
#[must_use]
pub fn response_id_in(bytes: &[u8]) -> Option<&str> {
    let start = memchr::memchr(b'{', bytes)?;
    let object = &bytes[start..];
    let value = member(object, b"id").or_else(|| member(member(object, b"response")?, b"id"))?;
    let value = value.strip_prefix(b"\"")?;
    let is_of_id = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'.');
    let length = value.iter().take_while(|byte| is_of_id(byte)).count();
    let id = &value[..length];
    let is_response = id.starts_with(b"resp") && value.get(length) == Some(&b'"');
    is_response.then(|| std::str::from_utf8(id).ok())?
}

/// Returns the text behind the colon of a member of an object, which may be cut off anywhere. Only
/// the object's own members count, not those of nested objects.
fn member<'b>(object: &'b [u8], name: &[u8]) -> Option<&'b [u8]> {
    let (mut at, mut depth) = (0, 0_usize);
    while let Some(byte) = object.get(at) {
        match byte {
            b'{' | b'[' => depth += 1,
            // The object has ended without this member.
            b'}' | b']' if depth <= 1 => return None,
            b'}' | b']' => depth -= 1,
            b'"' => {
                let length = string_length(&object[at + 1..])?;
                let text = &object[at + 1..at + 1 + length];
                at += length + 1;
                let value = (depth == 1 && text == name).then(|| member_value(&object[at + 1..]));
                if let Some(Some(value)) = value {
                    return Some(value);
                }
            }
            _ => {}
        }
        at += 1;
    }
    None
}

/// Returns the number of bytes up to the quote that ends a string; `None` if it is cut off.
fn string_length(text: &[u8]) -> Option<usize> {
    let mut at = 0;
    loop {
        at += memchr::memchr2(b'"', b'\\', &text[at..])?;
        if text[at] == b'"' {
            return Some(at);
        }
        // A character behind a backslash does not end the string.
        at += 2;
        if at > text.len() {
            return None;
        }
    }
}

/// Returns the text behind a key's colon.
fn member_value(after_key: &[u8]) -> Option<&[u8]> {
    Some(after_key.trim_ascii_start().strip_prefix(b":")?.trim_ascii_start())
}

pub(crate) fn read_usage(value: &[u8]) -> Option<Usage> {
    if !value.starts_with(b"{") {
        return None;
    }
    // Reads one value and ignores the rest.
    let fields = UsageFields::deserialize(&mut serde_json::Deserializer::from_slice(value)).ok()?;
    let prompt_tokens = fields.prompt_tokens.or(fields.input_tokens);
    let completion_tokens = fields.completion_tokens.or(fields.output_tokens);
    let (prompt_tokens, completion_tokens) = match (prompt_tokens, completion_tokens) {
        // Some replies, e.g. of embeddings, report only a total, which is all prompt.
        (None, None) => (fields.total_tokens?, 0),
        (Some(prompt), None) => {
            (prompt, fields.total_tokens.map_or(0, |total| total.saturating_sub(prompt)))
        }
        (prompt, Some(completion)) => {
            let rest = || fields.total_tokens.map_or(0, |total| total.saturating_sub(completion));
            (prompt.unwrap_or_else(rest), completion)
        }
    };
    let details = fields.prompt_tokens_details.or(fields.input_tokens_details);
    Some(Usage {
        prompt_tokens,
        completion_tokens,
        cached_tokens: details.and_then(|details| details.cached_tokens),
    })
}

#[derive(Deserialize)]
struct UsageFields {
    prompt_tokens: Option<u64>,
    input_tokens: Option<u64>,
    completion_tokens: Option<u64>,
    output_tokens: Option<u64>,
    total_tokens: Option<u64>,
    prompt_tokens_details: Option<Details>,
    input_tokens_details: Option<Details>,
}

#[derive(Deserialize)]
struct Details {
    cached_tokens: Option<u64>,
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    #[track_caller]
    fn check_usage(bytes: &str, expected: Option<(u64, u64, Option<u64>)>) {
        let usage = expected.map(|(prompt_tokens, completion_tokens, cached_tokens)| Usage {
            prompt_tokens,
            completion_tokens,
            cached_tokens,
        });
        assert_eq!(usage_in(bytes.as_bytes()), usage, "{bytes}");
        assert!(usage.is_none() || may_have_usage(bytes.as_bytes()), "{bytes}");
    }

    #[test]
    fn usage_is_read_under_the_names_of_both_apis() {
        check_usage(
            r#"{"id":"x","usage":{"prompt_tokens":5,"total_tokens":9,"completion_tokens":4,
                "prompt_tokens_details":{"cached_tokens":3}}}"#,
            Some((5, 4, Some(3))),
        );
        check_usage(
            r#"{"usage" : {"input_tokens":5,"input_tokens_details":{"cached_tokens":0},
                "output_tokens":4,"output_tokens_details":{"reasoning_tokens":1}}}"#,
            Some((5, 4, Some(0))),
        );
        check_usage(
            r#"{"usage":{"prompt_tokens":8,"total_tokens":8,"prompt_tokens_details":null}}"#,
            Some((8, 0, None)),
        );
    }

    #[test]
    fn a_total_says_what_no_other_number_does() {
        check_usage(r#"{"usage":{"total_tokens":9}}"#, Some((9, 0, None)));
        check_usage(r#"{"usage":{"prompt_tokens":5,"total_tokens":9}}"#, Some((5, 4, None)));
        check_usage(r#"{"usage":{"completion_tokens":4,"total_tokens":9}}"#, Some((5, 4, None)));
        check_usage(r#"{"usage":{"prompt_tokens":9,"total_tokens":5}}"#, Some((9, 0, None)));
    }

    #[test]
    fn the_last_usage_object_counts_even_in_a_cut_reply() {
        let usage = |tokens: u64| format!(r#""usage":{{"prompt_tokens":{tokens}}}"#);
        check_usage(&format!("{{{},{}}}", usage(1), usage(2)), Some((2, 0, None)));
        check_usage(&format!(r#"ng to say"}}],{}}}"#, usage(3)), Some((3, 0, None)));
        check_usage(&format!(r#"{{{},"x":{{"usage":null}}}}"#, usage(4)), Some((4, 0, None)));
        check_usage(r#"{"usage":{"prompt_tokens":1"#, None);
    }

    #[test]
    fn what_a_model_writes_is_never_taken_for_usage() {
        let said = json!({"content": r#""usage":{"prompt_tokens":1}"#}).to_string();
        check_usage(&said, None);
        check_usage(r#"{"content":"usage","x":{"prompt_tokens":1}}"#, None);
        check_usage(r#"{"usage":"{\"prompt_tokens\":1}"}"#, None);
    }

    #[test]
    fn usage_without_a_count_is_none() {
        check_usage(r#"{"usage":null}"#, None);
        check_usage(r#"{"usage":{}}"#, None);
        check_usage(r#"{"usage":{"prompt_tokens":"5"}}"#, None);
        check_usage(r#"{"usage":{"prompt_tokens":-5}}"#, None);
        check_usage("", None);
    }

    #[test]
    fn nested_unfinished_usage_is_given_up_soon() {
        let real = r#"{"usage":{"prompt_tokens":1}}"#;
        let junk = r#""usage":{"#;
        check_usage(&format!("{real}{}", junk.repeat(TRIES_MAX - 1)), Some((1, 0, None)));
        check_usage(&format!("{real}{}", junk.repeat(TRIES_MAX)), None);
    }

    #[track_caller]
    fn check_id(bytes: &str, expected: Option<&str>) {
        assert_eq!(response_id_in(bytes.as_bytes()), expected, "{bytes}");
    }

    #[test]
    fn a_response_id_is_found_in_a_reply_and_in_an_event() {
        check_id(r#"{"id":"resp_1","output":[{"id":"msg_1"}]}"#, Some("resp_1"));
        check_id(
            "event: response.created\ndata: {\"type\":\"response.created\",\"response\":{\"id\" : \
             \"resp_a-b.c\",\"previous_response_id\":\"resp_0\"}}\n\n",
            Some("resp_a-b.c"),
        );
        check_id(r#"{"output":[{"id":"msg_1"}],"id":"resp_2"}"#, Some("resp_2"));
        check_id(r#"{"a":"\\","b":"\\\"id\\\":","id":"resp_3","out"#, Some("resp_3"));
    }

    #[test]
    fn an_id_that_a_reply_repeats_of_its_request_is_not_its_own() {
        check_id(r#"{"metadata":{"id":"resp_x"},"id":"resp_1"}"#, Some("resp_1"));
        check_id(r#"{"detail":[{"input":{"id":"resp_x"}}]}"#, None);
        check_id(r#"{"metadata":{"response":{"id":"resp_x"}}}"#, None);
        check_id(r#"{"response":{"metadata":{"id":"resp_x"},"id":"resp_1"}}"#, Some("resp_1"));
        check_id(r#"{"tools":[{"id":"resp_x"}],"id":7}"#, None);
        check_id(r#"{} {"id":"resp_x"}"#, None);
    }

    #[test]
    fn other_strings_are_no_response_id() {
        check_id(r#"{"previous_response_id":"resp_0"}"#, None);
        check_id(r#"{"id":"chatcmpl-1"}"#, None);
        check_id(r#"{"id":"resp_1"#, None);
        check_id(r#"{"id":"resp/../1"}"#, None);
        check_id(r#"{"id":5,"text":"\"id\":\"resp_1\""}"#, None);
        check_id("", None);
    }

    proptest! {
        #[test]
        fn usage_is_found_behind_any_text(text in any::<String>(), tokens in any::<u32>()) {
            let reply = json!({"a": text, "usage": {"prompt_tokens": tokens}}).to_string();
            let found = usage_in(reply.as_bytes()).unwrap();
            prop_assert_eq!(found.prompt_tokens, u64::from(tokens));
        }

        #[test]
        fn no_text_of_a_model_is_taken_for_a_fact(text in r#"["\\:{}a-z_ ]{0,40}"#) {
            let text = format!(r#"{text}"usage":{{"prompt_tokens":1}},"id":"resp_1"{text}"#);
            let reply = json!({"a": text}).to_string();
            prop_assert_eq!(usage_in(reply.as_bytes()), None);
            prop_assert_eq!(response_id_in(reply.as_bytes()), None);
        }

        #[test]
        fn no_bytes_make_it_panic(
            before in prop::collection::vec(any::<u8>(), 0..40),
            key in prop::sample::select(vec![r#""usage":{"#, r#""id":"resp"#, r#""usage""#]),
            after in prop::collection::vec(any::<u8>(), 0..40),
        ) {
            let bytes = [&before, key.as_bytes(), &after].concat();
            let id_is_inside = response_id_in(&bytes).is_none_or(|id| id.len() <= bytes.len());
            prop_assert!(id_is_inside);
            prop_assert!(usage_in(&bytes).is_none() || may_have_usage(&bytes));
        }
    }
}
