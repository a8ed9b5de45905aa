//! Lines of single events.

use memchr::memchr2;

use crate::reply::event_kind::EventKind;

/// Data by which many streams end.
pub(crate) const DONE_MARK: &[u8] = b"[DONE]";

/// Meaning of an event for its stream, by its lines.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct SseReading {
    /// True if the event has data other than `[DONE]`.
    pub(crate) is_counted: bool,
    /// True if the event announces the end of the stream.
    pub(crate) ends_stream: bool,
    /// Kind of the event by its name.
    pub(crate) kind: EventKind,
}

impl SseReading {
    /// Reads an event.
    pub(crate) fn of(event: &[u8]) -> Self {
        let mut reading = Self::default();
        for line in lines(event) {
            if let Some(data) = field(line, b"data") {
                let is_done_mark = data.trim_ascii_end() == DONE_MARK;
                reading.is_counted |= !is_done_mark;
                reading.ends_stream |= is_done_mark;
            } else if let Some(name) = field(line, b"event") {
                reading.kind.add(name);
            }
        }
        reading.ends_stream |= reading.kind.is_last;
        reading
    }
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
        assert_eq!(
            (reading.is_counted, reading.ends_stream),
            (is_counted, ends_stream),
            "{event:?}"
        );
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
    fn the_kind_of_an_event_is_that_of_its_name() {
        let kind = |event: &str| SseReading::of(event.as_bytes()).kind;
        assert_eq!(kind("event: error\ndata: {}\n\n"), EventKind::of(b"error"));
        assert_eq!(kind("event:ping\r\n\r\n"), EventKind::of(b"ping"));
        assert_eq!(kind("data: {\"type\":\"error\"}\n\n"), EventKind::default());
    }
}
