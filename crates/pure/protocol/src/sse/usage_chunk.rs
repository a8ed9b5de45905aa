//! Usage in the events of a chat or completion, for clients that did not ask for it.

use std::fmt;

use serde::de::{Deserializer, IgnoredAny, MapAccess, Visitor};
use serde_json::value::RawValue;

/// Members of a chunk that decide what is left of it without its usage.
#[derive(Debug, Default)]
pub(crate) struct UsageChunk<'e> {
    /// Value of `usage`, even if it is null.
    pub(crate) usage: Option<&'e RawValue>,
    has_choices: bool,
    has_empty_choices: bool,
}

impl<'e> UsageChunk<'e> {
    /// Reads the data of an event; `None` if it is no JSON object.
    pub(crate) fn read(json: &'e [u8]) -> Option<Self> {
        serde_json::Deserializer::from_slice(json).deserialize_map(Members).ok()
    }

    /// Returns true if the chunk is one that a server sends because it was asked for usage: its list of
    /// choices is empty. Clients that did not ask read the first choice of each chunk, and fail at such a
    /// chunk, whatever else it has, such as vLLM's `system_fingerprint` or llama.cpp's `timings`.
    pub(crate) fn is_of_usage(&self) -> bool {
        let has_usage = self.usage.is_some_and(|usage| usage.get().starts_with('{'));
        has_usage && self.has_empty_choices && !self.has_choices
    }
}

/// Visitor of a chunk's members.
struct Members;

impl<'de> Visitor<'de> for Members {
    type Value = UsageChunk<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Self::Value, A::Error> {
        let mut chunk = UsageChunk::default();
        while let Some(name) = members.next_key::<std::borrow::Cow<'de, str>>()? {
            match &*name {
                "usage" => chunk.usage = Some(members.next_value()?),
                "choices" => match members.next_value::<&'de RawValue>()?.get() {
                    "null" => {}
                    json if is_empty_array(json) => chunk.has_empty_choices = true,
                    _ => chunk.has_choices = true,
                },
                _ => drop(members.next_value::<IgnoredAny>()?),
            }
        }
        Ok(chunk)
    }
}

fn is_empty_array(json: &str) -> bool {
    json.strip_prefix('[')
        .and_then(|rest| rest.strip_suffix(']'))
        .is_some_and(|it| it.trim().is_empty())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[track_caller]
    fn check(json: &str, expected: bool) {
        let chunk = UsageChunk::read(json.as_bytes());
        assert_eq!(chunk.is_some_and(|chunk| chunk.is_of_usage()), expected, "{json}");
    }

    #[test]
    fn a_chunk_of_usage_has_an_empty_list_of_choices() {
        check(r#"{"id":"x","choices":[],"usage":{"prompt_tokens":1}}"#, true);
        check(r#"{"usage": {}, "choices" : [ ]}"#, true);
        check(
            r#"{"id":"x","object":"o","created":1,"model":"m","choices":[],"usage":{},"service_tier":null}"#,
            true,
        );
        check(r#"{"choices":[],"usage":null}"#, false);
        check(r#"{"choices":[]}"#, false);
        check(r#"{"usage":{"prompt_tokens":1}}"#, false);
        check(r#"{"choices":null,"usage":{"prompt_tokens":1}}"#, false);
        check(r#"{"choices":[{"index":0}],"usage":{"prompt_tokens":1}}"#, false);
        check(r#"{"choices":[],"x":{"usage":{"prompt_tokens":1}}}"#, false);
        check("[DONE]", false);
        check("[]", false);
    }

    #[test]
    fn whatever_else_it_has_a_chunk_without_choices_is_of_usage() {
        for member in ["system_fingerprint", "timings", "cost", "metrics", "x_groq", "service_tier"]
        {
            check(&format!(r#"{{"choices":[],"{member}":{{"a":1}},"usage":{{}}}}"#), true);
            check(&format!(r#"{{"choices":[],"{member}":{{"a":1}}}}"#), false);
        }
    }

    proptest! {
        #[test]
        fn no_bytes_make_it_panic(bytes in prop::collection::vec(any::<u8>(), 0..60)) {
            let _chunk = UsageChunk::read(&bytes).map(|chunk| chunk.is_of_usage());
        }
    }
}
