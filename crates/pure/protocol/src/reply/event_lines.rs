//! Lines of one event that comes in pieces.

use memchr::memchr2;

use super::document::DocumentReader;
use super::event_kind::EventKind;
use crate::sse::event::DONE_MARK;

/// Bytes that are kept of a name, or of data that may be the mark of the end. None is longer.
const VALUE_BYTES_MAX: usize = 64;

/// Reader of an event's lines. Data goes to the reader of a document; data lines of one event belong
/// together.
#[derive(Debug, Default)]
pub(super) struct EventLines {
    place: LinePosition,
    /// Beginning of the line's field name, or of its value.
    kept: Vec<u8>,
    /// True if the value has more than is kept and white space.
    is_longer: bool,
    /// True if the event has data other than the mark of the end.
    pub(super) is_counted: bool,
    /// True if the event has the mark of the end.
    pub(super) is_done: bool,
    /// Kind of the event by its name.
    pub(super) kind: EventKind,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum LinePosition {
    /// In the name of a field.
    #[default]
    Field,
    /// Behind the colon of `data`, before the space that may follow.
    DataStart,
    Data,
    /// Behind the colon of `event`.
    NameStart,
    Name,
    /// In another field, or in a comment.
    Other,
}

impl EventLines {
    /// Prepares for another event.
    pub(super) fn begin(&mut self) {
        let kept = std::mem::take(&mut self.kept);
        *self = Self { kept, ..Self::default() };
        self.kept.clear();
    }

    /// Reads the next piece of the event.
    pub(super) fn push(&mut self, piece: &[u8], document: &mut DocumentReader) {
        let mut rest = piece;
        while let Some(byte) = rest.first() {
            rest = match (self.place, byte) {
                (_, b'\n' | b'\r') => {
                    self.end_line(document);
                    &rest[1..]
                }
                (LinePosition::Field, b':') => {
                    self.place = match self.kept.as_slice() {
                        b"data" => LinePosition::DataStart,
                        b"event" => LinePosition::NameStart,
                        _ => LinePosition::Other,
                    };
                    self.kept.clear();
                    &rest[1..]
                }
                (LinePosition::Field, _) => {
                    self.keep(&rest[..1]);
                    &rest[1..]
                }
                (LinePosition::DataStart | LinePosition::NameStart, _) => {
                    self.place = match self.place {
                        LinePosition::DataStart => LinePosition::Data,
                        _ => LinePosition::Name,
                    };
                    &rest[usize::from(*byte == b' ')..]
                }
                (LinePosition::Data | LinePosition::Name | LinePosition::Other, _) => {
                    let (value, after) =
                        rest.split_at(memchr2(b'\n', b'\r', rest).unwrap_or(rest.len()));
                    self.value(value, document);
                    after
                }
            };
        }
    }

    /// Ends the event. Its last line may lack its end.
    pub(super) fn end(&mut self, document: &mut DocumentReader) {
        self.end_line(document);
    }

    fn value(&mut self, value: &[u8], document: &mut DocumentReader) {
        if self.place == LinePosition::Other {
            return;
        }
        self.keep(value);
        if self.place == LinePosition::Data {
            document.push(value);
        }
    }

    fn end_line(&mut self, document: &mut DocumentReader) {
        match self.place {
            LinePosition::Data | LinePosition::DataStart => {
                let is_done = !self.is_longer && self.kept.trim_ascii_end() == DONE_MARK;
                self.is_done |= is_done;
                self.is_counted |= !is_done;
                document.push(b"\n");
            }
            // A name that is longer than the kept text is none of the known ones.
            LinePosition::Name | LinePosition::NameStart => {
                self.kind.add(&self.kept);
            }
            _ => {}
        }
        self.place = LinePosition::Field;
        self.kept.clear();
        self.is_longer = false;
    }

    fn keep(&mut self, part: &[u8]) {
        let room = VALUE_BYTES_MAX.saturating_sub(self.kept.len());
        let (kept, more) = part.split_at(part.len().min(room));
        self.kept.extend_from_slice(kept);
        self.is_longer |= !more.trim_ascii().is_empty();
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::ReplyApi;
    use super::super::schema::{Form, Schema};
    use super::*;
    use crate::sse::event::SseReading;

    /// Reads an event in pieces.
    fn read(event: &[u8], piece_bytes: usize) -> (EventLines, DocumentReader) {
        let mut lines = EventLines::default();
        let mut document = DocumentReader::new(Schema::new(ReplyApi::Chat, Form::Event));
        event.chunks(piece_bytes).for_each(|piece| lines.push(piece, &mut document));
        lines.end(&mut document);
        (lines, document)
    }

    #[track_caller]
    fn check(event: &str, id: Option<&str>) {
        for piece_bytes in 1..event.len() + 1 {
            let (lines, document) = read(event.as_bytes(), piece_bytes);
            let whole = SseReading::of(event.as_bytes());
            assert_eq!(lines.is_counted, whole.is_counted, "{event:?}");
            assert_eq!(lines.is_done || lines.kind.is_last, whole.ends_stream, "{event:?}");
            assert_eq!(lines.kind, whole.kind, "{event:?}");
            assert_eq!(document.found().id.as_deref(), id, "{event:?} by {piece_bytes}");
        }
    }

    #[test]
    fn data_is_found_among_other_lines() {
        check("data: {\"id\":\"a\"}\n\n", Some("a"));
        check("data:{\"id\":\r\ndata:\"a\"}\r\n\r\n", Some("a"));
        check(": data: {\"id\":\"b\"}\rid: 5\rdata: {\"id\":\"a\"}\r\r", Some("a"));
        check("event: x\ndata: {\"id\":\"a\"}", Some("a"));
        check("database: {\"id\":\"b\"}\n\n", None);
        check("data {\"id\":\"b\"}\n\n", None);
        check("xdata: {\"id\":\"b\"}\n\n", None);
        check("data:\n\n", None);
        check("data\n\n", None);
        check("\n", None);
    }

    #[test]
    fn marks_and_names_are_those_of_a_whole_event() {
        check("data: [DONE]\n\n", None);
        check(
            "data: [DONE]                                                                   \n\n",
            None,
        );
        check("data: [DONE] x\n\n", None);
        check("event: message_stop\ndata: {}\n\n", None);
        check("event:error\n\n", None);
        check("event: ping\nevent: response.failed\n\n", None);
        check(&format!("event: response.{}\ndata: x\n\n", "x".repeat(100)), None);
        check(&format!("event: {}error\n\n", "x".repeat(100)), None);
    }

    proptest! {
        #[test]
        fn the_lines_of_any_event_are_those_of_its_whole(
            pieces in prop::collection::vec(prop::sample::select(vec![
                "data:", "data: ", "event:", "event: ", "[DONE]", "error", "ping", "\n", "\r", "\r\n", "x",
                "message_stop", ":", " ", "{}", "response.completed", "\u{e9}",
            ]), 0..20),
            piece_bytes in 1..9_usize,
        ) {
            let event = pieces.concat();
            let (lines, _) = read(event.as_bytes(), piece_bytes);
            let whole = SseReading::of(event.as_bytes());
            prop_assert_eq!((lines.is_counted, lines.kind), (whole.is_counted, whole.kind));
            prop_assert_eq!(lines.is_done || lines.kind.is_last, whole.ends_stream);
        }
    }
}
