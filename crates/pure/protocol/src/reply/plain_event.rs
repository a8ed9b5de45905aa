//! Events that are like an earlier one without facts, except for their text.

use std::ops::Range;

use memchr::memmem;

/// Meaning of an event for its stream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct EventReading {
    /// True if the event has data other than `[DONE]`.
    pub(crate) is_counted: bool,
    /// True if a member `usage` may be in the event, even if it is null.
    pub(crate) may_have_usage: bool,
}

/// Longest event in bytes that others are compared with.
const EVENT_BYTES_MAX: usize = 1 << 10;
/// Events that are kept in turn. The events of some streams differ in more than one text, so that
/// none is like another.
const TRIES: u32 = 16;
/// Members whose text is generated.
const TEXTS: [&[u8]; 5] =
    [b"\"content\"", b"\"text\"", b"\"reasoning_content\"", b"\"reasoning\"", b"\"arguments\""];

/// Event without facts, and the place of its text. Most events of a stream differ there alone.
///
/// If an event has the same bytes before and behind that place, and the text of a string between
/// them, it is the same JSON with another text.
#[derive(Debug, Default)]
pub(super) struct PlainEvent {
    /// Bytes of the event; empty if there is none.
    event: Vec<u8>,
    text: Range<usize>,
    reading: EventReading,
    tries: u32,
}

impl PlainEvent {
    /// Returns the reading of an event like the one that is kept; `None` if it is not.
    pub(super) fn reading_of(&self, event: &[u8]) -> Option<EventReading> {
        if self.event.is_empty() {
            return None;
        }
        let rest = event.strip_prefix(&self.event[..self.text.start])?;
        let text = rest.strip_suffix(&self.event[self.text.end..])?;
        is_text(text).then_some(self.reading)
    }

    /// Takes an event without facts, of which `reading` is known, to compare the next ones with it.
    pub(super) fn learn(&mut self, event: &[u8], reading: EventReading) {
        if self.tries >= TRIES || event.len() > EVENT_BYTES_MAX {
            return;
        }
        self.tries += 1;
        let Some(text) = text_in(event) else { return };
        self.event.clear();
        self.event.extend_from_slice(event);
        (self.text, self.reading) = (text, reading);
    }
}

/// Returns true if the bytes are the whole text of a JSON string: without control characters, and
/// with a backslash before each quote.
fn is_text(bytes: &[u8]) -> bool {
    let mut is_escaped = false;
    let all_fit = bytes.iter().all(|byte| {
        let fits = *byte >= b' ' && (is_escaped || *byte != b'"');
        is_escaped = !is_escaped && *byte == b'\\';
        fits
    });
    all_fit && !is_escaped
}

/// Returns the place of the first generated text that is not empty.
fn text_in(event: &[u8]) -> Option<Range<usize>> {
    let place = |name: &&[u8]| {
        let value = event[memmem::find(event, name)? + name.len()..].trim_ascii_start();
        let value = value.strip_prefix(b":")?.trim_ascii_start().strip_prefix(b"\"")?;
        let start = event.len() - value.len();
        // The first quote that is not escaped ends the text.
        let mut ends = memchr::memchr_iter(b'"', value);
        let length = ends.find(|end| is_text(&value[..*end]))?;
        (length > 0).then_some(start..start + length)
    };
    TEXTS.iter().find_map(place)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const READING: EventReading = EventReading { is_counted: true, may_have_usage: false };

    fn chunk(member: &str, text: &str, reason: &str) -> Vec<u8> {
        format!("data: {{\"id\":\"x\",\"{member}\":\"{text}\",\"finish_reason\":{reason}}}\n\n")
            .into()
    }

    fn learned(event: &[u8]) -> PlainEvent {
        let mut plain = PlainEvent::default();
        assert_eq!(plain.reading_of(event), None);
        plain.learn(event, READING);
        plain
    }

    #[test]
    fn an_event_with_another_text_is_like_the_one_before() {
        for member in ["content", "text", "reasoning_content", "reasoning", "arguments"] {
            let plain = learned(&chunk(member, " word", "null"));
            for text in [" word", "", "x", " a longer text", "{[:,", "\u{e9}", "\\n", "\\\\\\\""] {
                let event = chunk(member, text, "null");
                assert_eq!(plain.reading_of(&event), Some(READING), "{member} {text}");
            }
        }
    }

    #[test]
    fn an_event_that_differs_elsewhere_is_not_like_it() {
        let plain = learned(&chunk("content", "a", "null"));
        for event in [
            chunk("content", "a", "\"stop\""),
            chunk("content", "a\\", "null"),
            chunk("content", "a\\\\\",\"usage\":\"", "null"),
            chunk("content", "a\",\"usage\":\"", "null"),
            chunk("content", "a\n\ndata: [DONE]", "null"),
            chunk("text", "a", "null"),
            b"data: [DONE]\n\n".to_vec(),
            Vec::new(),
        ] {
            assert_eq!(plain.reading_of(&event), None, "{}", String::from_utf8_lossy(&event));
        }
    }

    #[test]
    fn an_event_without_a_text_is_not_kept() {
        for data in [
            "{\"id\":\"a\"}",
            "{\"content\":1}",
            "{\"content\":null}",
            "{\"content\":\"\"}",
            "{\"content\":\"a\n\"}",
            "{\"content\":\"a\\\"",
            "{\"content\":\"a",
            "\"content\"",
            "x",
        ] {
            assert!(learned(format!("data: {data}\n\n").as_bytes()).event.is_empty(), "{data}");
        }
        let plain = learned(b"data: {\"content\":\"\",\"reasoning\" : \"ab\"}\n\n");
        assert_eq!(&plain.event[plain.text.clone()], b"ab");
    }

    #[test]
    fn what_is_kept_has_a_limit() {
        let mut plain = PlainEvent::default();
        for number in 0..100 {
            let event = format!("data: {{\"content\":\"a\",\"n\":{number}}}\n\n");
            assert_eq!(plain.reading_of(event.as_bytes()), None);
            plain.learn(event.as_bytes(), READING);
        }
        assert_eq!(plain.tries, TRIES);
        let long = chunk("content", &"a".repeat(EVENT_BYTES_MAX), "null");
        assert!(learned(&long).event.is_empty());
    }

    proptest! {
        #[test]
        fn an_event_is_alike_if_only_its_text_differs(
            texts in prop::array::uniform2("[ -~\u{e9}]{0,8}"), spaces in "[ ]{0,2}",
        ) {
            let event = |text: &str| {
                let text = serde_json::to_string(text).unwrap();
                format!("data: {{\"a\":1,\"content\":{spaces}{text},\"b\":\"c\"}}\n\n").into_bytes()
            };
            let [one, other] = texts.each_ref().map(|text| event(text));
            let mut plain = PlainEvent::default();
            plain.learn(&one, READING);
            let is_kept = !texts[0].is_empty();
            prop_assert_eq!(plain.reading_of(&other), is_kept.then_some(READING));
        }

        #[test]
        fn no_bytes_make_it_panic(
            events in prop::collection::vec(prop::collection::vec(
                prop::sample::select(b"\"\\:conte{}\n".to_vec()), 0..40), 0..6),
        ) {
            let mut plain = PlainEvent::default();
            for event in &events {
                let _reading = plain.reading_of(event);
                plain.learn(event, READING);
            }
        }
    }
}
