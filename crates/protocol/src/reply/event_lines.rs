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
    place: LinePlace,
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
enum LinePlace {
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
                (LinePlace::Field, b':') => {
                    self.place = match self.kept.as_slice() {
                        b"data" => LinePlace::DataStart,
                        b"event" => LinePlace::NameStart,
                        _ => LinePlace::Other,
                    };
                    self.kept.clear();
                    &rest[1..]
                }
                (LinePlace::Field, _) => {
                    self.keep(&rest[..1]);
                    &rest[1..]
                }
                (LinePlace::DataStart | LinePlace::NameStart, _) => {
                    self.place = match self.place {
                        LinePlace::DataStart => LinePlace::Data,
                        _ => LinePlace::Name,
                    };
                    &rest[usize::from(*byte == b' ')..]
                }
                (LinePlace::Data | LinePlace::Name | LinePlace::Other, _) => {
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
        if self.place == LinePlace::Other {
            return;
        }
        self.keep(value);
        if self.place == LinePlace::Data {
            document.push(value);
        }
    }

    fn end_line(&mut self, document: &mut DocumentReader) {
        match self.place {
            LinePlace::Data | LinePlace::DataStart => {
                let is_done = !self.is_longer && self.kept.trim_ascii_end() == DONE_MARK;
                self.is_done |= is_done;
                self.is_counted |= !is_done;
                document.push(b"\n");
            }
            LinePlace::Name | LinePlace::NameStart if !self.is_longer => {
                self.kind.add(&self.kept);
            }
            _ => {}
        }
        self.place = LinePlace::Field;
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
