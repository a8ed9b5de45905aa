//! Places of a body at which usage and salts are requested.

use std::ops::Range;

use bytes::Bytes;
use smallvec::SmallVec;

use super::{Edit, SaltField, UsageWish, asks_throughout, json_string};
use crate::Facts;

static USAGE_FIELD: &[u8] = b"\"include_usage\":true";
static THROUGHOUT_FIELD: &[u8] = b"\"continuous_usage_stats\":true";
static THROUGHOUT_FIELDS: &[u8] = b"\"include_usage\":true,\"continuous_usage_stats\":true";
static USAGE_OBJECT: &[u8] = b"{\"include_usage\":true}";
static THROUGHOUT_OBJECT: &[u8] = b"{\"include_usage\":true,\"continuous_usage_stats\":true}";
static USAGE_OPTIONS: &[u8] = b"\"stream_options\":{\"include_usage\":true},";
static THROUGHOUT_OPTIONS: &[u8] =
    b"\"stream_options\":{\"include_usage\":true,\"continuous_usage_stats\":true},";

/// Places of a body, and their contents. Unlike the body's facts they borrow nothing.
#[derive(Clone, Debug)]
pub(super) struct BodyPositions {
    is_stream: bool,
    /// True if the client asks for usage at the end of the stream.
    asks_usage: bool,
    /// True if the client names the option for usage in every event.
    asks_throughout: bool,
    options: OptionsPosition,
    /// Value of `stream_options.include_usage`.
    include_usage: Option<Range<usize>>,
    /// Values of the fields that separate cache entries, by [`SaltField`].
    salts: [Option<Range<usize>>; 2],
    /// Offset just after the body's `{`, where a field can be inserted.
    insert_at: usize,
    /// True if a field inserted there needs no comma after it.
    is_empty_object: bool,
}

/// Place of the value of `stream_options`.
#[derive(Clone, Debug)]
enum OptionsPosition {
    Absent,
    /// A null, which means no options.
    Null(Range<usize>),
    /// No object: the engine refuses it, so that nothing is requested.
    Wrong,
    Object {
        /// Offset just after its `{`.
        inside: usize,
        is_empty: bool,
    },
}

impl BodyPositions {
    pub(super) fn of(facts: &Facts<'_>, body: &[u8]) -> Self {
        Self {
            is_stream: facts.stream,
            asks_usage: facts.include_usage == Some(true),
            asks_throughout: asks_throughout(facts, body),
            options: OptionsPosition::of(facts, body),
            include_usage: facts.include_usage_value.clone(),
            salts: facts.cache_salt_values.clone(),
            insert_at: facts.insert_at,
            is_empty_object: facts.is_empty_object,
        }
    }

    /// Returns the places in the body after an edit that touches none of them.
    pub(super) fn after(mut self, edit: &Edit) -> Self {
        let move_behind = |at: &mut Range<usize>| {
            if at.start >= edit.at.end {
                let shifted = |offset: usize| offset - edit.at.len() + edit.with.len();
                *at = shifted(at.start)..shifted(at.end);
            }
        };
        match &mut self.options {
            OptionsPosition::Absent | OptionsPosition::Wrong => {}
            OptionsPosition::Null(at) => move_behind(at),
            OptionsPosition::Object { inside, .. } => {
                let mut at = *inside..*inside;
                move_behind(&mut at);
                *inside = at.start;
            }
        }
        self.include_usage.iter_mut().for_each(move_behind);
        self.salts.iter_mut().flatten().for_each(move_behind);
        self.is_empty_object &= edit.with.is_empty();
        self
    }

    /// Returns the part of a wish that the client does not ask for itself.
    pub(super) fn beyond_client(&self, wish: UsageWish) -> UsageWish {
        let is_open = self.is_stream && !matches!(self.options, OptionsPosition::Wrong);
        match wish {
            UsageWish::Throughout if is_open && !self.asks_throughout => UsageWish::Throughout,
            UsageWish::AtEnd | UsageWish::Throughout if is_open && !self.asks_usage => {
                UsageWish::AtEnd
            }
            UsageWish::AsSent | UsageWish::AtEnd | UsageWish::Throughout => UsageWish::AsSent,
        }
    }

    /// Adds the edits that request usage, as far as the client does not.
    pub(super) fn add_usage_edits(&self, wish: UsageWish, edits: &mut SmallVec<[Edit; 4]>) {
        let texts = match self.beyond_client(wish) {
            UsageWish::AsSent => return,
            UsageWish::AtEnd => [USAGE_FIELD, USAGE_OBJECT, USAGE_OPTIONS],
            UsageWish::Throughout => [THROUGHOUT_FIELDS, THROUGHOUT_OBJECT, THROUGHOUT_OPTIONS],
        };
        let [field, object, options] = texts;
        let edit = |at: Range<usize>, with| Edit { at, with: Bytes::from_static(with) };
        match (&self.options, &self.include_usage) {
            (OptionsPosition::Object { inside, is_empty }, Some(value)) => {
                if field == THROUGHOUT_FIELDS {
                    edits.push(field_edit(*inside, *is_empty, THROUGHOUT_FIELD));
                }
                edits.push(edit(value.clone(), b"true"));
            }
            (OptionsPosition::Object { inside, is_empty }, None) => {
                edits.push(field_edit(*inside, *is_empty, field));
            }
            (OptionsPosition::Null(null), _) => edits.push(edit(null.clone(), object)),
            (OptionsPosition::Wrong, _) => {}
            // The object has at least the field `stream`, so a comma is always right.
            (OptionsPosition::Absent, _) => {
                edits.push(edit(self.insert_at..self.insert_at, options));
            }
        }
    }

    /// Returns the edit that sets the salt. It replaces the client's own value, since engines could
    /// take either of two fields with one name.
    pub(super) fn salt_edit(&self, field: SaltField, salt: &str, is_followed: bool) -> Edit {
        let value = json_string(salt);
        if let Some(at) = &self.salts[field as usize] {
            return Edit { at: at.clone(), with: value };
        }
        // A field inserted behind this one in the same place also needs the comma.
        let comma: &[u8] = if self.is_empty_object && !is_followed { b"" } else { b"," };
        let with = [b"\"", field.name().as_bytes(), b"\":", &*value, comma].concat();
        Edit { at: self.insert_at..self.insert_at, with: with.into() }
    }
}

impl OptionsPosition {
    fn of(facts: &Facts<'_>, body: &[u8]) -> Self {
        match &facts.stream_options {
            None => Self::Absent,
            Some(at) if body[at.start] == b'{' => {
                let inside = at.start + 1;
                Self::Object { inside, is_empty: body[inside..at.end].trim_ascii_start() == b"}" }
            }
            Some(at) if body[at.start] == b'n' => Self::Null(at.clone()),
            Some(_) => Self::Wrong,
        }
    }
}

/// Returns the edit that inserts a field at the beginning of an object.
fn field_edit(inside: usize, is_empty: bool, field: &[u8]) -> Edit {
    let comma: &[u8] = if is_empty { b"" } else { b"," };
    Edit { at: inside..inside, with: [field, comma].concat().into() }
}
