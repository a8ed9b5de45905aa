//! Events that are like the last one except for their text: nearly all of a stream.

use std::ops::Range;

/// Longest event in bytes that others are compared with.
const EVENT_BYTES_MAX: usize = 2_048;

/// Event that only added text, by which the next ones like it are read without parsing them.
///
/// If an event has the same bytes before and behind a string, and the string has neither quotes nor
/// escapes, then it is the same JSON with another text.
#[derive(Debug, Default)]
pub(super) struct Likeness {
    /// Bytes of the event; empty if there is none.
    event: Vec<u8>,
    /// Place of the text, without its quotes.
    text: Range<usize>,
}

impl Likeness {
    /// Keeps an event with the place of the text that it added.
    pub(super) fn keep(&mut self, event: &[u8], text: Range<usize>) {
        self.event.clear();
        if event.len() <= EVENT_BYTES_MAX {
            self.event.extend_from_slice(event);
            self.text = text;
        }
    }

    /// Forgets the event.
    pub(super) fn forget(&mut self) {
        self.event.clear();
    }

    /// Returns the text of an event that is like the one that is kept; `None` if it is not.
    pub(super) fn text<'e>(&self, event: &'e [u8]) -> Option<&'e [u8]> {
        if self.event.is_empty() {
            return None;
        }
        let rest = event.strip_prefix(&self.event[..self.text.start])?;
        let text = rest.strip_suffix(&self.event[self.text.end..])?;
        let is_plain = |byte: &u8| *byte >= b' ' && !matches!(byte, b'"' | b'\\');
        text.iter().all(is_plain).then_some(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_text_may_differ_and_only_plainly() {
        let mut likeness = Likeness::default();
        assert_eq!(likeness.text(b"data: {\"a\":\"x\"}\n\n"), None);
        likeness.keep(b"data: {\"a\":\"x\"}\n\n", 12..13);
        assert_eq!(likeness.text(b"data: {\"a\":\" long er\"}\n\n"), Some(&b" long er"[..]));
        assert_eq!(likeness.text(b"data: {\"a\":\"\"}\n\n"), Some(&b""[..]));
        for other in [
            "{\"a\":\"x\",\"b\":\"x\"}",
            "{\"a\":\"\\n\"}",
            "{\"a\":\"\n\"}",
            "{\"b\":\"x\"}",
            "{\"a\":",
        ] {
            assert_eq!(likeness.text(format!("data: {other}\n\n").as_bytes()), None, "{other}");
        }
        likeness.keep(&[b'x'; 3_000], 1..2);
        assert_eq!(likeness.text(&[b'x'; 3_000]), None);
        likeness.keep(b"abc", 1..2);
        likeness.forget();
        assert_eq!(likeness.text(b"abc"), None);
    }
}
