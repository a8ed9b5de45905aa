//! What one event is.

use memchr::memchr2;
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::value::RawValue;

/// What an event means for the stream that it is in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Reading {
    /// It has data other than `[DONE]`.
    pub(super) is_counted: bool,
    /// The stream says with it that it is over.
    pub(super) ends_stream: bool,
}

impl Reading {
    /// Reads an event, or the beginning of one that is too long to wait for.
    pub(super) fn of(event: &[u8]) -> Self {
        let mut reading = Self::default();
        for line in lines(event) {
            if let Some(data) = field(line, b"data") {
                let is_done_mark = data.trim_ascii_end() == b"[DONE]";
                reading.is_counted |= !is_done_mark;
                reading.ends_stream |= is_done_mark;
            } else if let Some(name) = field(line, b"event") {
                reading.ends_stream |= is_last_of_response(name);
            }
        }
        reading
    }
}

/// Whether an event tells the usage of a stream and nothing else: its `choices` are empty.
pub(super) fn is_usage_alone(event: &[u8]) -> bool {
    // The lines of one event's data belong together with a line break between them.
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

fn is_last_of_response(name: &[u8]) -> bool {
    matches!(name, b"response.completed" | b"response.incomplete" | b"response.failed")
}

/// The value of a line's field, without the one space that may follow the colon.
fn field<'l>(line: &'l [u8], name: &[u8]) -> Option<&'l [u8]> {
    let value = line.strip_prefix(name)?.strip_prefix(b":")?;
    Some(value.strip_prefix(b" ").unwrap_or(value))
}

/// The event's lines without their ends. A CR LF makes an empty line between, which has no field.
fn lines(event: &[u8]) -> impl Iterator<Item = &[u8]> {
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
