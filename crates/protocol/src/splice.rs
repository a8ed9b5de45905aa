//! A changed body as a few slices of the same buffer.

use std::ops::Range;

use bytes::Bytes;
use smallvec::SmallVec;

use crate::Facts;

/// A body in order. Two edits cut it into three slices, with two new ones between them.
#[derive(Clone, Debug, Default)]
pub struct Segments(SmallVec<[Bytes; 5]>);

/// `with` takes the place of `at`, which may be empty.
pub(crate) struct Edit {
    pub(crate) at: Range<usize>,
    pub(crate) with: Bytes,
}

static USAGE_FIELD: &[u8] = b"\"include_usage\":true";
static USAGE_OBJECT: &[u8] = b"{\"include_usage\":true}";
static THROUGHOUT_FIELD: &[u8] = b"\"continuous_usage_stats\":true";
static THROUGHOUT_FIELDS: &[u8] = b"\"include_usage\":true,\"continuous_usage_stats\":true";
static THROUGHOUT_OBJECT: &[u8] = b"{\"include_usage\":true,\"continuous_usage_stats\":true}";
static THROUGHOUT_OPTIONS: &[u8] =
    b"\"stream_options\":{\"include_usage\":true,\"continuous_usage_stats\":true},";
static USAGE_OPTIONS: &[u8] = b"\"stream_options\":{\"include_usage\":true},";

impl Segments {
    /// Length of the whole in bytes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.iter().map(Bytes::len).sum()
    }

    /// Whether there is no byte at all.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The slices in order; none is empty.
    pub fn iter(&self) -> std::slice::Iter<'_, Bytes> {
        self.0.iter()
    }

    fn push(&mut self, slice: Bytes) {
        if !slice.is_empty() {
            self.0.push(slice);
        }
    }
}

impl From<Bytes> for Segments {
    fn from(body: Bytes) -> Self {
        let mut segments = Self::default();
        segments.push(body);
        segments
    }
}

impl FromIterator<Bytes> for Segments {
    fn from_iter<I: IntoIterator<Item = Bytes>>(slices: I) -> Self {
        let mut segments = Self::default();
        slices.into_iter().for_each(|slice| segments.push(slice));
        segments
    }
}

impl IntoIterator for Segments {
    type Item = Bytes;
    type IntoIter = smallvec::IntoIter<[Bytes; 5]>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.into_iter()
    }
}

impl<'s> IntoIterator for &'s Segments {
    type Item = &'s Bytes;
    type IntoIter = std::slice::Iter<'s, Bytes>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

/// The body with another model name; every other byte stays as it was.
///
/// `facts` must be what [`crate::read_facts`] said of this very body.
#[must_use]
pub fn replace_model(body: &Bytes, facts: &Facts<'_>, model: &str) -> Segments {
    rewrite(body, facts, Some(model), false)
}

/// The body with another model name, if one is given, and with usage asked for, if that is wished
/// and the request is a stream that doesn't ask for it already. Other bytes stay as they were.
///
/// `facts` must be what [`crate::read_facts`] said of this very body.
#[must_use]
pub fn rewrite(
    body: &Bytes,
    facts: &Facts<'_>,
    new_model: Option<&str>,
    inject_usage: bool,
) -> Segments {
    let mut edits = SmallVec::<[Edit; 2]>::new();
    edits.extend(new_model.map(|model| model_edit(facts, model)));
    if inject_usage && facts.stream && facts.include_usage != Some(true) {
        edits.push(usage_edit(body, facts));
    }
    edits.sort_by_key(|edit| edit.at.start);
    apply(body, edits)
}

/// The same with usage asked for in every event of the stream, which the body must not do already.
pub(crate) fn rewrite_throughout(
    body: &Bytes,
    facts: &Facts<'_>,
    new_model: Option<&str>,
) -> Segments {
    let mut edits = SmallVec::<[Edit; 3]>::new();
    edits.extend(new_model.map(|model| model_edit(facts, model)));
    match &facts.stream_options {
        Some(options) if body[options.start] == b'{' => {
            let is_named = facts.include_usage_value.is_some();
            let field = if is_named { THROUGHOUT_FIELD } else { THROUGHOUT_FIELDS };
            edits.push(field_edit(body, options, field));
            if is_named {
                edits.push(usage_edit(body, facts));
            }
        }
        Some(null) => {
            edits.push(Edit { at: null.clone(), with: Bytes::from_static(THROUGHOUT_OBJECT) });
        }
        None => {
            let at = facts.insert_at..facts.insert_at;
            edits.push(Edit { at, with: Bytes::from_static(THROUGHOUT_OPTIONS) });
        }
    }
    edits.sort_by_key(|edit| edit.at.start);
    apply(body, edits)
}

/// `text` as a JSON string with its quotes.
#[must_use]
#[expect(clippy::expect_used, reason = "a string always serialises")]
pub fn json_string(text: &str) -> Bytes {
    serde_json::to_vec(text).expect("a string serialises").into()
}

fn model_edit(facts: &Facts<'_>, model: &str) -> Edit {
    let value = json_string(model);
    match &facts.model_value {
        Some(at) => Edit { at: at.clone(), with: value },
        None => {
            let comma: &[u8] = if facts.is_empty_object { b"" } else { b"," };
            let field = [b"\"model\":", &*value, comma].concat();
            Edit { at: facts.insert_at..facts.insert_at, with: field.into() }
        }
    }
}

fn usage_edit(body: &[u8], facts: &Facts<'_>) -> Edit {
    if let Some(at) = &facts.include_usage_value {
        return Edit { at: at.clone(), with: Bytes::from_static(b"true") };
    }
    match &facts.stream_options {
        Some(options) if body[options.start] == b'{' => field_edit(body, options, USAGE_FIELD),
        Some(null) => Edit { at: null.clone(), with: Bytes::from_static(USAGE_OBJECT) },
        // The object has `stream` in it, so a comma is always right.
        None => {
            let at = facts.insert_at..facts.insert_at;
            Edit { at, with: Bytes::from_static(USAGE_OPTIONS) }
        }
    }
}

/// Puts a field into an object.
fn field_edit(body: &[u8], object: &Range<usize>, field: &[u8]) -> Edit {
    let at = object.start + 1;
    let rest = body[at..object.end].trim_ascii_start();
    let comma: &[u8] = if rest == b"}" { b"" } else { b"," };
    Edit { at: at..at, with: [field, comma].concat().into() }
}

/// The body with these edits, which must be in order and apart.
pub(crate) fn apply(body: &Bytes, edits: impl IntoIterator<Item = Edit>) -> Segments {
    let mut segments = Segments::default();
    let mut done = 0;
    for Edit { at, with } in edits {
        segments.push(body.slice(done..at.start));
        segments.push(with);
        done = at.end;
    }
    segments.push(body.slice(done..));
    segments
}

#[cfg(test)]
mod splice_test;
