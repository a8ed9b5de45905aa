//! Search for the ends of events, in chunks that are cut anywhere.

use memchr::memchr2;

/// Scanner for the ends of events, which keeps its state between chunks.
///
/// An event ends with an empty line; a line ends with LF, CR LF or CR, and streams may mix them.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct BoundaryScanner {
    place: LinePosition,
}

/// Position in the grammar of lines, before the next byte.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum LinePosition {
    /// LineStart => (LineStart and event end | BlankCr | InLine)
    #[default]
    LineStart,
    /// InLine => (InLine | LineStart | AfterCr)
    InLine,
    /// A line ended with a CR, whose LF may follow.
    /// AfterCr => (LineStart | InLine | EventCr and event end)
    AfterCr,
    /// The empty line of a stream with LFs has its CR, so its LF should follow, and belongs to the
    /// event. BlankCr => LineStart and event end
    BlankCr,
    /// An event ended with two CRs; should an LF follow nevertheless, it means nothing.
    /// EventCr => (LineStart | BlankCr | InLine)
    EventCr,
}

impl BoundaryScanner {
    /// Returns the offset just behind the next end of an event at or after `from`. `None` if the
    /// rest of the chunk begins an event, which the next chunk continues from its offset 0.
    pub(crate) fn next_end(&mut self, chunk: &[u8], from: usize) -> Option<usize> {
        let mut at = from;
        loop {
            if self.place == LinePosition::InLine {
                at += memchr2(b'\n', b'\r', chunk.get(at..)?)?;
            }
            let byte = *chunk.get(at)?;
            let (next, end) = match (self.place, byte) {
                (LinePosition::LineStart, b'\n') => (LinePosition::LineStart, Some(at + 1)),
                (LinePosition::LineStart | LinePosition::EventCr, b'\r') => {
                    (LinePosition::BlankCr, None)
                }
                (LinePosition::InLine | LinePosition::AfterCr | LinePosition::EventCr, b'\n') => {
                    (LinePosition::LineStart, None)
                }
                (LinePosition::InLine, b'\r') => (LinePosition::AfterCr, None),
                (LinePosition::AfterCr, b'\r') => match chunk.get(at + 1) {
                    Some(b'\n') => (LinePosition::LineStart, Some(at + 2)),
                    _ => (LinePosition::EventCr, Some(at + 1)),
                },
                (LinePosition::BlankCr, b'\n') => (LinePosition::LineStart, Some(at + 1)),
                (LinePosition::BlankCr, _) => (LinePosition::LineStart, Some(at)),
                _ => (LinePosition::InLine, None),
            };
            self.place = next;
            if end.is_some() {
                return end;
            }
            at += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the ends of all events of chunks, as offsets in the whole stream.
    fn ends(chunks: &[&str]) -> Vec<usize> {
        let mut scanner = BoundaryScanner::default();
        let mut ends = Vec::new();
        let mut before = 0;
        for chunk in chunks {
            let mut from = 0;
            while let Some(end) = scanner.next_end(chunk.as_bytes(), from) {
                ends.push(before + end);
                from = end;
            }
            before += chunk.len();
        }
        ends
    }

    #[test]
    fn an_empty_line_ends_an_event_whatever_ends_the_lines() {
        assert_eq!(ends(&["a\n\nb\n\n"]), [3, 6]);
        assert_eq!(ends(&["a\r\n\r\nb\r\n\r\n"]), [5, 10]);
        assert_eq!(ends(&["a\r\rb\r\r"]), [3, 6]);
        assert_eq!(ends(&["a\n\r\nb\r\n\nc\r\r\n"]), [4, 8, 12]);
        assert_eq!(ends(&["a\n\rb"]), [3]);
        assert_eq!(ends(&["a\nb\r\nc\rd"]), Vec::<usize>::new());
    }

    #[test]
    fn an_end_is_found_wherever_the_chunks_are_cut() {
        assert_eq!(ends(&["a\n", "\n"]), [3]);
        assert_eq!(ends(&["a\r", "\n", "\r", "\nb"]), [5]);
        assert_eq!(ends(&["a\r\n\r", "\nb"]), [5]);
        assert_eq!(ends(&["a\r", "\rb"]), [3]);
        assert_eq!(ends(&["a\n\r", "b"]), [3]);
        assert_eq!(ends(&["", "a", "", "\n", "", "\n", ""]), [3]);
    }

    #[test]
    fn an_event_of_carriage_returns_ends_at_once_and_swallows_a_late_line_feed() {
        assert_eq!(ends(&["a\r\r"]), [3]);
        assert_eq!(ends(&["a\r\r", "\nb\n\n"]), [3, 7]);
        assert_eq!(ends(&["a\r\r", "\n", "\n"]), [3, 5]);
    }

    #[test]
    fn empty_lines_in_a_row_are_events_without_anything() {
        assert_eq!(ends(&["\n\n"]), [1, 2]);
        assert_eq!(ends(&["a\n\n\r\n\n"]), [3, 5, 6]);
    }
}
