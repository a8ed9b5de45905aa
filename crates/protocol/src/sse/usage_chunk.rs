//! Usage in the events of a chat or completion, for clients that did not ask for it.

use std::fmt;

use serde::de::{Deserializer, IgnoredAny, MapAccess, Visitor};
use serde_json::value::RawValue;

/// Members of a chunk that carry nothing of the reply itself.
const USUAL: [&str; 4] = ["id", "object", "created", "model"];

/// Members of a chunk, as far as they decide on what is left of it without its usage.
#[derive(Debug, Default)]
pub(crate) struct UsageChunk<'e> {
    /// Value of `usage`, even if it is null.
    pub(crate) usage: Option<&'e RawValue>,
    has_choices: bool,
    has_empty_choices: bool,
    fingerprint: Option<&'e RawValue>,
    has_more: bool,
}

impl<'e> UsageChunk<'e> {
    /// Reads the data of an event; `None` if it is no JSON object.
    pub(crate) fn read(json: &'e [u8]) -> Option<Self> {
        serde_json::Deserializer::from_slice(json).deserialize_map(Members).ok()
    }

    /// Returns true if nothing is left of the chunk without its usage: it has no choice and no other
    /// member than those of each chunk. A fingerprint that the client has, as JSON in `shown`,
    /// counts as such a member.
    pub(crate) fn is_usage_alone(&self, shown: Option<&str>) -> bool {
        let has_usage = self.usage.is_some_and(|usage| usage.get().starts_with('{'));
        let is_shown = self.fingerprint.is_none_or(|it| Some(it.get()) == shown);
        has_usage && self.has_empty_choices && !self.has_choices && !self.has_more && is_shown
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
            if USUAL.contains(&&*name) {
                members.next_value::<IgnoredAny>()?;
                continue;
            }
            let value: &'de RawValue = members.next_value()?;
            match (&*name, value.get()) {
                ("usage", _) => chunk.usage = Some(value),
                (_, "null") => {}
                ("choices", json) if is_empty_array(json) => chunk.has_empty_choices = true,
                ("choices", _) => chunk.has_choices = true,
                ("system_fingerprint", _) => chunk.fingerprint = Some(value),
                _ => chunk.has_more = true,
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
    fn check(json: &str, shown: Option<&str>, expected: bool) {
        let chunk = UsageChunk::read(json.as_bytes());
        assert_eq!(chunk.is_some_and(|chunk| chunk.is_usage_alone(shown)), expected, "{json}");
    }

    #[test]
    fn usage_is_alone_beside_the_members_of_every_chunk() {
        check(r#"{"id":"x","choices":[],"usage":{"prompt_tokens":1}}"#, None, true);
        check(r#"{"usage": {}, "choices" : [ ]}"#, None, true);
        check(
            r#"{"id":"x","object":"o","created":1,"model":"m","choices":[],"usage":{},"service_tier":null}"#,
            None,
            true,
        );
        check(r#"{"choices":[],"usage":null}"#, None, false);
        check(r#"{"choices":[]}"#, None, false);
        check(r#"{"usage":{"prompt_tokens":1}}"#, None, false);
        check(r#"{"choices":null,"usage":{"prompt_tokens":1}}"#, None, false);
        check(r#"{"choices":[{"index":0}],"usage":{"prompt_tokens":1}}"#, None, false);
        check(r#"{"choices":[],"x":{"usage":{"prompt_tokens":1}}}"#, None, false);
        check("[DONE]", None, false);
        check("[]", None, false);
    }

    #[test]
    fn whatever_else_a_chunk_has_stays() {
        for member in ["timings", "cost", "citations", "metrics", "x_groq", "service_tier"] {
            let chunk = format!(r#"{{"choices":[],"{member}":{{"a":1}},"usage":{{}}}}"#);
            check(&chunk, None, false);
            check(&chunk.replace("{\"a\":1}", "null"), None, true);
        }
    }

    #[test]
    fn a_fingerprint_stays_unless_the_client_has_it() {
        let chunk = r#"{"choices":[],"system_fingerprint":"fp","usage":{}}"#;
        check(chunk, None, false);
        check(chunk, Some("\"other\""), false);
        check(chunk, Some("\"fp\""), true);
        check(&chunk.replace("\"fp\"", "null"), None, true);
    }

    proptest! {
        #[test]
        fn no_bytes_make_it_panic(bytes in prop::collection::vec(any::<u8>(), 0..60)) {
            let _chunk = UsageChunk::read(&bytes).map(|chunk| chunk.is_usage_alone(None));
        }
    }
}
