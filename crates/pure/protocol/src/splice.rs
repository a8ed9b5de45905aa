//! Changed bodies, as a few slices of the same buffer.

use std::ops::Range;

use bytes::Bytes;
use smallvec::SmallVec;

use crate::Facts;

mod draft;
mod positions;

pub use draft::BodyDraft;
use positions::BodyPositions;

/// Slices of a body, in order. Two edits cut a body into three slices, with two new ones between
/// them.
#[derive(Clone, Debug, Default)]
pub struct Segments(SmallVec<[Bytes; 5]>);

/// Replacement of `at`, which may be empty, by `with`.
#[derive(Clone, Debug)]
pub(crate) struct Edit {
    pub(crate) at: Range<usize>,
    pub(crate) with: Bytes,
}

impl Segments {
    /// Returns the total length in bytes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.iter().map(Bytes::len).sum()
    }

    /// Returns true if there is no byte.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the slices in order; none of them is empty.
    pub fn iter(&self) -> std::slice::Iter<'_, Bytes> {
        self.0.iter()
    }

    /// Returns the body with these edits, which must be in order and must not overlap.
    fn edited(&self, edits: impl IntoIterator<Item = Edit>) -> Self {
        let mut edited = Self::default();
        let mut done = 0;
        for Edit { at, with } in edits {
            edited.push_part(self, done..at.start);
            edited.push(with);
            done = at.end;
        }
        edited.push_part(self, done..usize::MAX);
        edited
    }

    /// Adds a part of another body.
    fn push_part(&mut self, body: &Self, part: Range<usize>) {
        let mut start = 0;
        for slice in body {
            let end = start + slice.len();
            let (from, to) = (part.start.max(start), part.end.min(end));
            if from < to {
                self.push(slice.slice(from - start..to - start));
            }
            start = end;
        }
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

/// Returns the body with another model name; every other byte stays as it is.
///
/// `facts` must be those that [`crate::read_facts`] returned for this very body.
#[must_use]
pub fn replace_model(body: &Bytes, facts: &Facts<'_>, model: &str) -> Segments {
    rewrite(body, facts, Some(model), false)
}

/// Changes to a body that is sent to a replica.
#[derive(Clone, Copy, Debug, Default)]
pub struct Changes<'a> {
    /// New name of the model; `None` keeps the client's.
    pub model: Option<&'a str>,
    /// Usage report that the gateway requests.
    pub usage: UsageWish,
    /// Salt that separates cache entries of engines; replaces the client's own value. `None` keeps
    /// that.
    pub salt: Option<(SaltField, &'a str)>,
}

/// Usage report that the gateway requests from a stream, beyond the client's own request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum UsageWish {
    /// No other report than the client's own request.
    #[default]
    AsSent,
    /// Report at the end of the stream.
    AtEnd,
    /// Report in every event, if the engine supports it.
    Throughout,
}

/// Field by which an engine separates cache entries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SaltField {
    /// Field `cache_salt` of vLLM.
    CacheSalt,
    /// Field `extra_key` of SGLang.
    ExtraKey,
}

impl SaltField {
    fn name(self) -> &'static str {
        match self {
            Self::CacheSalt => "cache_salt",
            Self::ExtraKey => "extra_key",
        }
    }
}

/// Returns the body with another model name, if one is given. With `inject_usage`, a stream that
/// does not ask for usage asks for it. Other bytes stay as they are.
///
/// `facts` must be those that [`crate::read_facts`] returned for this very body.
#[must_use]
pub fn rewrite(
    body: &Bytes,
    facts: &Facts<'_>,
    new_model: Option<&str>,
    inject_usage: bool,
) -> Segments {
    let usage = if inject_usage { UsageWish::AtEnd } else { UsageWish::AsSent };
    change(body, facts, &Changes { model: new_model, usage, salt: None })
}

/// Returns the body with these changes; other bytes stay as they are.
///
/// `facts` must be those that [`crate::read_facts`] returned for this very body.
#[must_use]
pub fn change(body: &Bytes, facts: &Facts<'_>, changes: &Changes<'_>) -> Segments {
    let model = changes.model.map(|model| model_edit(facts, model));
    if changes.usage == UsageWish::AsSent && changes.salt.is_none() {
        return apply(body, model);
    }
    let places = BodyPositions::of(facts, body);
    let mut edits = SmallVec::<[Edit; 4]>::new();
    // The salt comes first: the field behind it decides if it needs a comma.
    edits.extend(changes.salt.map(|(field, salt)| places.salt_edit(field, salt, model.is_some())));
    edits.extend(model);
    places.add_usage_edits(changes.usage, &mut edits);
    edits.sort_by_key(|edit| edit.at.start);
    apply(body, edits)
}

/// Returns true if the client names the option for usage in every event.
pub(crate) fn asks_throughout(facts: &Facts<'_>, body: &[u8]) -> bool {
    let options = facts.stream_options.clone().and_then(|at| body.get(at)).unwrap_or_default();
    memchr::memmem::find(options, b"\"continuous_usage_stats\"").is_some()
}

/// Returns `text` as a JSON string with its quotes.
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

/// Returns the body with these edits, which must be in order and must not overlap.
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
