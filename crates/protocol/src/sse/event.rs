//! Classification of single events.

use memchr::memchr2;
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::value::RawValue;

/// Meaning of an event for its stream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct SseReading {
    /// True if the event has data other than `[DONE]`.
    pub(super) is_counted: bool,
    /// True if the event announces the end of the stream.
    pub(super) ends_stream: bool,
}

impl SseReading {
    /// Reads an event, or the beginning of one that is too long to wait for.
    pub(super) fn of(event: &[u8]) -> Self {
        let mut reading = Self::default();
        for line in lines(event) {
            if let Some(data) = field(line, b"data") {
                let is_done_mark = data.trim_ascii_end() == b"[DONE]";
                reading.is_counted |= !is_done_mark;
                reading.ends_stream |= is_done_mark;
            } else if let Some(name) = field(line, b"event") {
                reading.ends_stream |= is_last(name);
            }
        }
        reading
    }
}

/// Returns true if an event has the usage of a stream and nothing else: its `choices` are empty.
pub(crate) fn is_usage_alone(event: &[u8]) -> bool {
    // Data lines of one event belong together, joined by line breaks.
    let data: Vec<&[u8]> = lines(event).filter_map(|line| field(line, b"data")).collect();
    serde_json::from_slice::<UsageChunk<'_>>(&data.join(&b'\n'))
        .is_ok_and(|chunk| chunk.choices.is_empty() && chunk.usage.get().starts_with('{'))
}

#[derive(Deserialize)]
struct UsageChunk<'e> {
    choices: Vec<IgnoredAny>,
    #[serde(borrow)]
    usage: &'e RawValue,
}

/// Returns true if an event of this name is the last of its stream: in the Responses API,
/// Anthropic's messages, speech and transcripts.
fn is_last(name: &[u8]) -> bool {
    matches!(
        name,
        b"response.completed"
            | b"response.incomplete"
            | b"response.failed"
            | b"message_stop"
            | b"speech.audio.done"
            | b"transcript.text.done"
    )
}

/// Returns the value of a line's field, without the one space that may follow the colon.
pub(crate) fn field<'l>(line: &'l [u8], name: &[u8]) -> Option<&'l [u8]> {
    let value = line.strip_prefix(name)?.strip_prefix(b":")?;
    Some(value.strip_prefix(b" ").unwrap_or(value))
}

/// Returns the event's lines without line ends. Between CR and LF lies an empty line, which has no
/// field.
pub(crate) fn lines(event: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut rest = event;
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let end = memchr2(b'\n', b'\r', rest).unwrap_or(rest.len());
        let line = &rest[..end];
        rest = rest.get(end + 1..).unwrap_or_default();
        Some(line)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(event: &str, is_counted: bool, ends_stream: bool) {
        let reading = SseReading::of(event.as_bytes());
        assert_eq!(reading, SseReading { is_counted, ends_stream }, "{event:?}");
    }

    #[test]
    fn an_event_counts_if_it_has_data() {
        check("data: {}\n\n", true, false);
        check("data:{}\r\n\r\n", true, false);
        check("id: 1\revent: x\rdata: {}\r\r", true, false);
        check("data: a\ndata: b\n\n", true, false);
        check(": keep-alive\n\n", false, false);
        check("event: ping\n\n", false, false);
        check("database: 1\n\n", false, false);
        check("\n", false, false);
        check("", false, false);
    }

    #[test]
    fn the_end_of_a_stream_is_told_by_data_or_by_name() {
        check("data: [DONE]\n\n", false, true);
        check("data:[DONE]\r\n\r\n", false, true);
        check("data: [DONE]", false, true);
        check("data: [DONE] or not\n\n", true, false);
        check("event: response.completed\ndata: {}\n\n", true, true);
        check("event: message_stop\ndata: {}\n\n", true, true);
        check("event: response.incomplete\ndata: {}\n\n", true, true);
        check("event: response.failed\ndata: {}\n\n", true, true);
        check("event: response.created\ndata: {}\n\n", true, false);
        check("data: {\"content\":\"[DONE]\"}\n\n", true, false);
    }

    #[test]
    fn usage_alone_means_no_choices_and_a_usage_object() {
        let check = |data: &str, expected: bool| {
            let event = format!("data: {data}\n\n");
            assert_eq!(is_usage_alone(event.as_bytes()), expected, "{event}");
        };
        check(r#"{"id":"x","choices":[],"usage":{"prompt_tokens":1}}"#, true);
        check(r#"{"usage": {}, "choices" : [ ]}"#, true);
        check(r#"{"choices":[],"usage":null}"#, false);
        check(r#"{"choices":[]}"#, false);
        check(r#"{"usage":{"prompt_tokens":1}}"#, false);
        check(r#"{"choices":[{"index":0}],"usage":{"prompt_tokens":1}}"#, false);
        check(r#"{"choices":[],"x":{"usage":{"prompt_tokens":1}}}"#, false);
        check("[DONE]", false);
    }

    #[test]
    fn data_over_several_lines_is_one() {
        assert!(is_usage_alone(b"data: {\"choices\":[],\r\ndata: \"usage\":{}}\r\n\r\n"));
    }
}
