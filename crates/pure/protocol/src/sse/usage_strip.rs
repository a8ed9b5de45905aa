//! Removal of usage from events.

use bytes::Bytes;

use super::usage_chunk::UsageChunk;
use crate::continuation::chunk::ChunkEvent;
use crate::continuation::rewriter::Rewriter;

/// Part of an event that the client gets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Stripped {
    /// The event as it is.
    Same,
    /// Nothing.
    Dropped,
    /// The event without its usage.
    Changed(Bytes),
}

/// Returns an event without its usage.
pub(super) fn without_usage(event: Bytes) -> Stripped {
    let ChunkEvent::Data(bytes, at) = ChunkEvent::read(event) else { return Stripped::Same };
    let Some(chunk) = UsageChunk::read(&bytes[at]) else { return Stripped::Same };
    let Some(usage) = chunk.usage else { return Stripped::Same };
    if chunk.is_of_usage() {
        return Stripped::Dropped;
    }
    let mut rewriter = Rewriter::new(&bytes);
    rewriter.remove("usage", usage);
    Stripped::Changed(rewriter.finish())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::*;

    fn strip(event: &str) -> Option<String> {
        match without_usage(Bytes::copy_from_slice(event.as_bytes())) {
            Stripped::Same => Some(event.to_owned()),
            Stripped::Dropped => None,
            Stripped::Changed(bytes) => Some(String::from_utf8(bytes.to_vec()).unwrap()),
        }
    }

    #[track_caller]
    fn check(data: &str, expected: Option<&str>) {
        let event = format!("data: {data}\n\n");
        let expected = expected.map(|data| format!("data: {data}\n\n"));
        assert_eq!(strip(&event), expected, "{data}");
    }

    #[test]
    fn an_event_of_usage_is_left_out() {
        // vLLM sends its fingerprint in the last event alone.
        check(r#"{"id":"x","choices":[],"usage":{},"system_fingerprint":"vllm-0.32"}"#, None);
        check(r#"{"choices":[],"usage":{"a":1},"timings":{}}"#, None);
        check(r#"{"id":"x","choices":[],"usage":{"prompt_tokens":1}}"#, None);
        check(r#"{"usage":{},"choices":[]}"#, None);
        assert_eq!(strip("data: {\"choices\":[],\r\ndata: \"usage\":{}}\r\n\r\n"), None);
    }

    #[test]
    fn only_usage_is_taken_out_of_an_event_with_more() {
        check(r#"{"choices":[{"index":0}],"usage":null}"#, Some(r#"{"choices":[{"index":0}]}"#));
        check(r#"{"choices":[{}], "usage" : {"a":1} }"#, Some(r#"{"choices":[{}] }"#));
        check(r#"{"choices":[],"usage":null}"#, Some(r#"{"choices":[]}"#));
        check(r#"{"usage":{"prompt_tokens":1}}"#, Some("{}"));
    }

    #[test]
    fn other_events_stay_as_they_are() {
        for data in [
            r#"{"choices":[{"delta":{"usage":{"a":1}}}]}"#,
            r#"{"choices":[],"x":{"usage":{}}}"#,
            "[DONE]",
            "not JSON",
            "[]",
        ] {
            check(data, Some(data));
        }
        for event in [": \"usage\"\n\n", "event: \"usage\"\n\n", "\n"] {
            assert_eq!(strip(event).as_deref(), Some(event));
        }
    }

    proptest! {
        #[test]
        fn what_is_left_is_the_same_json_without_usage(
            before in "[a-z\"\\\\ ]{0,6}", behind in "[a-z\"\\\\,]{0,6}", usage in any::<Option<u32>>(),
        ) {
            let mut whole = json!({
                "a": before, "choices": [{"text": before}], "z": {"usage": behind},
                "usage": usage.map(|tokens| json!({"prompt_tokens": tokens, "x": behind})),
            });
            let stripped = strip(&format!("data: {whole}\n\n")).unwrap();
            let left: Value = serde_json::from_str(stripped.strip_prefix("data: ").unwrap()).unwrap();
            whole.as_object_mut().unwrap().remove("usage");
            prop_assert_eq!(left, whole);
        }
    }
}
