//! Finds where events end, in chunks that are cut anywhere.

use memchr::memchr2;

/// Remembers between chunks where in the grammar of lines the stream is.
///
/// An event ends with an empty line; a line ends with LF, CR LF or CR, and streams may mix them.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct BoundaryScanner {
    place: Place,
}

/// The place is that before the next byte.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Place {
    /// LineStart => (LineStart and event end | BlankCr | InLine)
    #[default]
    LineStart,
    /// InLine => (InLine | LineStart | AfterCr)
    InLine,
    /// A line ended with a CR, whose LF may follow. AfterCr => (LineStart | InLine | EventCr and event end)
    AfterCr,
    /// The empty line of a stream with LFs has its CR, so its LF should follow, and belongs to the
    /// event. BlankCr => LineStart and event end
    BlankCr,
    /// An event ended with two CRs; should an LF follow nevertheless, it means nothing.
    /// EventCr => (LineStart | BlankCr | InLine)
    EventCr,
}

impl BoundaryScanner {
    /// Offset just after the next end of an event at or after `from`; `None` if the rest of the
    /// chunk is the beginning of an event, which the next chunk continues from its offset 0.
    pub(super) fn next_end(&mut self, chunk: &[u8], from: usize) -> Option<usize> {
        let mut at = from;
        loop {
            if self.place == Place::InLine {
                at += memchr2(b'\n', b'\r', chunk.get(at..)?)?;
            }
            let byte = *chunk.get(at)?;
            let (next, end) = match (self.place, byte) {
                (Place::LineStart, b'\n') => (Place::LineStart, Some(at + 1)),
                (Place::LineStart | Place::EventCr, b'\r') => (Place::BlankCr, None),
                (Place::InLine | Place::AfterCr | Place::EventCr, b'\n') => {
                    (Place::LineStart, None)
                }
                (Place::InLine, b'\r') => (Place::AfterCr, None),
                (Place::AfterCr, b'\r') => match chunk.get(at + 1) {
                    Some(b'\n') => (Place::LineStart, Some(at + 2)),
                    _ => (Place::EventCr, Some(at + 1)),
                },
                (Place::BlankCr, b'\n') => (Place::LineStart, Some(at + 1)),
                (Place::BlankCr, _) => (Place::LineStart, Some(at)),
                _ => (Place::InLine, None),
            };
            self.place = next;
            if end.is_some() {
                return end;
            }
            at += 1;
        }
    }
}
