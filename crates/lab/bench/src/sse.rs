//! Counter of the events in a server-sent event stream; input may be split anywhere.

/// Bytes to keep of a line: enough to recognise a blank line, a `data` field and `[DONE]`.
const LINE_KEPT_BYTES: usize = 16;

/// Counter of tokens (events with data, except `[DONE]`) that also notices the end of the stream.
///
/// Lines end in LF or CRLF. Comments and events without data do not count: a proxy that adds
/// keep-alive comments must not seem to produce tokens.
#[derive(Debug, Default)]
pub(crate) struct EventCounter {
    line: [u8; LINE_KEPT_BYTES],
    line_bytes: usize,
    event: SseEvent,
    tokens: u64,
    is_done: bool,
}

/// Content of the current event, from its lines so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum SseEvent {
    #[default]
    Empty,
    Token,
    Done,
}

impl EventCounter {
    /// Reads the next bytes of the stream.
    pub(crate) fn feed(&mut self, bytes: &[u8]) {
        let mut rest = bytes;
        while let Some(at) = memchr::memchr(b'\n', rest) {
            self.extend_line(&rest[..at]);
            self.end_line();
            rest = &rest[at + 1..];
        }
        self.extend_line(rest);
    }

    /// Returns the number of complete events with data so far, without `[DONE]`.
    pub(crate) fn tokens(&self) -> u64 {
        self.tokens
    }

    /// Returns true if `[DONE]` has arrived.
    pub(crate) fn is_done(&self) -> bool {
        self.is_done
    }

    fn extend_line(&mut self, bytes: &[u8]) {
        // Of a long line only the start is kept.
        let room = LINE_KEPT_BYTES.saturating_sub(self.line_bytes);
        let kept = room.min(bytes.len());
        if kept > 0 {
            self.line[self.line_bytes..self.line_bytes + kept].copy_from_slice(&bytes[..kept]);
        }
        self.line_bytes += bytes.len();
    }

    fn end_line(&mut self) {
        let length = std::mem::take(&mut self.line_bytes);
        let line = &self.line[..length.min(LINE_KEPT_BYTES)];
        match line.strip_suffix(b"\r").unwrap_or(line) {
            [] => self.end_event(),
            b"data: [DONE]" | b"data:[DONE]" => self.event = SseEvent::Done,
            data if data.starts_with(b"data:") => self.event = SseEvent::Token,
            // Comments and other fields neither begin an event nor change its kind.
            _ => {}
        }
    }

    fn end_event(&mut self) {
        match std::mem::take(&mut self.event) {
            // A blank line without data before it dispatches nothing.
            SseEvent::Empty => {}
            SseEvent::Token => self.tokens += 1,
            SseEvent::Done => self.is_done = true,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn count(pieces: &[&[u8]]) -> (u64, bool) {
        let mut counter = EventCounter::default();
        for piece in pieces {
            counter.feed(piece);
        }
        (counter.tokens(), counter.is_done())
    }

    const STREAM: &[u8] = b": hello\n\ndata: {\"a\":\"one\"}\n\nevent: x\ndata: {\"long\":\"0123456789abcdef\"}\r\n\r\nid: 7\n\ndata: 1\ndata: 2\n\n\n\ndata: [DONE]\n\n";

    #[test]
    fn every_split_counts_the_same() {
        for first in 0..=STREAM.len() {
            for second in first..=STREAM.len() {
                let pieces = [&STREAM[..first], &STREAM[first..second], &STREAM[second..]];
                assert_eq!(count(&pieces), (3, true), "{first} {second}");
            }
        }
        for size in 1..40 {
            let pieces: Vec<&[u8]> = STREAM.chunks(size).collect();
            assert_eq!(count(&pieces), (3, true), "pieces of {size}");
        }
    }

    #[test]
    fn an_unfinished_event_does_not_count() {
        assert_eq!(count(&[b"data: a\n"]), (0, false));
        assert_eq!(count(&[b"data: a\n\ndata: [DONE]\n"]), (1, false));
    }

    #[test]
    fn done_inside_a_token_is_a_token() {
        assert_eq!(count(&[b"data: [DONE] or not\n\n"]), (1, false));
    }
}
