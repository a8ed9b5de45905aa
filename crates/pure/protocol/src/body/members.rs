//! Extraction of known members from a JSON object, without parsing the others.

use std::borrow::Cow;
use std::fmt;
use std::ops::Range;

use serde::de::{DeserializeSeed, Deserializer as _, IgnoredAny, MapAccess, Visitor};
use serde_json::value::RawValue;
use smallvec::SmallVec;

use super::abridged::{Abridged, LongTexts};
use super::non_finite::finite;
use super::{BodyError, BodyErrorKind, NameTable, TextField};

/// Largest number of known members in a usual body.
const USUAL: usize = 12;

/// Body that was checked to be UTF-8, so that its slices need no further check.
pub(crate) struct CheckedBody<'b> {
    text: &'b str,
    object_start: usize,
}

/// Values of `N` known members of one object, as slices of the body.
pub(crate) struct Members<'b, const N: usize> {
    values: SmallVec<[&'b str; USUAL]>,
    /// Index of each name's value in `values`, counted from 1; 0 if the member is absent. One byte
    /// each, since most names are rare and this struct is moved.
    places: [u8; N],
    is_empty: bool,
    conflict: Option<Conflict<'b>>,
    /// Texts of long strings, as far as known; offsets in the object.
    long_texts: LongTexts,
}

/// First member that engines would read differently. Reported only after the whole object has
/// proved to be JSON, because a broken body should be called broken.
struct Conflict<'b> {
    value: &'b str,
    kind: BodyErrorKind,
}

impl<'b> CheckedBody<'b> {
    pub(crate) fn new(body: &'b [u8]) -> Result<Self, BodyError> {
        let text = simdutf8::compat::from_utf8(body)
            .map_err(|error| BodyError::new(body, error.valid_up_to(), BodyErrorKind::NotUtf8))?;
        // Parsers skip a byte order mark, or refuse it.
        let json = text.strip_prefix('\u{feff}').unwrap_or(text);
        let is_space = |byte: &u8| matches!(byte, b' ' | b'\t' | b'\n' | b'\r');
        let spaces = json.bytes().take_while(is_space).count();
        Ok(Self { text, object_start: text.len() - json.len() + spaces })
    }

    /// Returns the text from the body's `{` to its end.
    ///
    /// # Errors
    /// Returns an error if the body is no object or no JSON.
    pub(crate) fn object(&self) -> Result<&'b str, BodyError> {
        let text = &self.text[self.object_start..];
        if text.starts_with('{') {
            return Ok(text);
        }
        // Tells JSON of another type from text that is no JSON.
        match serde_json::from_str::<IgnoredAny>(text) {
            Ok(_) => Err(self.error(self.object_start, BodyErrorKind::NotAnObject)),
            Err(error) => Err(self.syntax_error(text, &error)),
        }
    }

    pub(crate) fn object_start(&self) -> usize {
        self.object_start
    }

    /// Reads the members of an object that fills `part`, a slice of the body.
    ///
    /// # Errors
    /// Returns an error if `part` is no JSON, or if engines would read a member differently.
    pub(crate) fn members<const N: usize>(
        &self,
        part: &'b str,
        names: &NameTable<N>,
    ) -> Result<Members<'b, N>, BodyError> {
        let members = match abridged_members(part, names) {
            Some(members) => members,
            None => whole_members(part, names)
                .or_else(|error| finite_members(part, names).ok_or(error))
                .map_err(|error| self.syntax_error(part, &error))?,
        };
        match members.conflict {
            Some(Conflict { value, kind }) => Err(self.error(self.offset(value), kind)),
            None => Ok(members),
        }
    }

    /// Returns the place of a value in the body.
    pub(crate) fn span(&self, json: &str) -> Range<usize> {
        let start = self.offset(json);
        start..start + json.len()
    }

    /// Returns the text of a string member; `None` if it is null.
    ///
    /// # Errors
    /// Returns an error if the value is no string.
    pub(crate) fn text(
        &self,
        json: &'b str,
        name: &'static str,
    ) -> Result<Option<TextField<'b>>, BodyError> {
        if json == "null" {
            return Ok(None);
        }
        let Some(inner) = json.strip_prefix('"').and_then(|rest| rest.strip_suffix('"')) else {
            return Err(self.wrong_type(json, name, "a string"));
        };
        let value = if inner.contains('\\') {
            // The JSON was checked, so only half of a surrogate pair can be wrong.
            let text = serde_json::from_str(json);
            Cow::Owned(text.map_err(|error| self.syntax_error(json, &error))?)
        } else {
            Cow::Borrowed(inner)
        };
        Ok(Some(TextField { value, span: self.span(json) }))
    }

    pub(crate) fn wrong_type(
        &self,
        json: &str,
        field: &'static str,
        expected: &'static str,
    ) -> BodyError {
        self.error(self.offset(json), BodyErrorKind::WrongType { field, expected })
    }

    /// Converts an error of the library, which has line and column in `part` both as fields and in
    /// its message.
    fn syntax_error(&self, part: &str, error: &serde_json::Error) -> BodyError {
        let lines_before: usize =
            part.split_inclusive('\n').take(error.line().saturating_sub(1)).map(str::len).sum();
        let at = lines_before + error.column().saturating_sub(1);
        let message = error.to_string();
        let reason = message.rfind(" at line ").map_or(&*message, |end| &message[..end]);
        self.error(self.offset(part) + at, BodyErrorKind::NotJson(reason.to_owned()))
    }

    pub(super) fn error(&self, offset: usize, kind: BodyErrorKind) -> BodyError {
        BodyError::new(self.text.as_bytes(), offset, kind)
    }

    /// Returns the offset of `part` in the body. `part` is always a slice of the body, so the
    /// difference of their addresses is the offset.
    fn offset(&self, part: &str) -> usize {
        part.as_ptr().addr().saturating_sub(self.text.as_ptr().addr())
    }
}

impl<'b, const N: usize> Members<'b, N> {
    /// Returns the value of the name at `index`, even if it is null; `None` if absent.
    pub(crate) fn value(&self, index: usize) -> Option<&'b str> {
        self.values.get(usize::from(self.places[index]).checked_sub(1)?).copied()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.is_empty
    }

    /// Takes the places of the texts of long strings, as far as known; offsets in the object.
    pub(crate) fn take_long_texts(&mut self) -> LongTexts {
        std::mem::take(&mut self.long_texts)
    }

    /// Returns the same members of another text, in which `find` finds each value.
    fn moved<'t>(self, find: impl Fn(&'b str) -> Option<&'t str>) -> Option<Members<'t, N>> {
        let Self { values, places, is_empty, conflict, .. } = self;
        let values = values.into_iter().map(&find).collect::<Option<_>>()?;
        let conflict = match conflict {
            Some(Conflict { value, kind }) => Some(Conflict { value: find(value)?, kind }),
            None => None,
        };
        Some(Members { values, places, is_empty, conflict, long_texts: LongTexts::new() })
    }

    fn put(&mut self, index: usize, name: &'static str, value: &'b str) {
        if self.places[index] != 0 {
            self.object_to(value, BodyErrorKind::Duplicate { field: name });
        } else {
            self.values.push(value);
            // Cannot overflow: each name has one place, and a table has fewer than 255 names.
            self.places[index] = self.values.len() as u8;
        }
    }

    fn object_to(&mut self, value: &'b str, kind: BodyErrorKind) {
        self.conflict.get_or_insert(Conflict { value, kind });
    }
}

/// Reads the members of an object, and gives long strings' text to no parser. `None` if that can't be
/// done, or if the object is no JSON.
fn abridged_members<'b, const N: usize>(
    part: &'b str,
    names: &NameTable<N>,
) -> Option<Members<'b, N>> {
    let abridged = Abridged::of(part)?;
    let members = whole_members(abridged.text(), names).ok()?;
    let members = members.moved(|value| abridged.whole(value))?;
    Some(Members { long_texts: abridged.long_texts(), ..members })
}

/// Reads the members of an object with numbers that are not finite. `None` if it has none, or is no
/// JSON apart from them.
fn finite_members<'b, const N: usize>(
    part: &'b str,
    names: &NameTable<N>,
) -> Option<Members<'b, N>> {
    let finite = finite(part)?;
    let start = finite.as_ptr().addr();
    whole_members(&finite, names).ok()?.moved(|value| {
        let at = value.as_ptr().addr().checked_sub(start)?;
        part.get(at..at + value.len())
    })
}

/// Reads the members of an object.
///
/// # Errors
/// Returns an error if `part` is no JSON.
fn whole_members<'b, const N: usize>(
    part: &'b str,
    names: &NameTable<N>,
) -> serde_json::Result<Members<'b, N>> {
    let mut json = serde_json::Deserializer::from_str(part);
    let members = json.deserialize_map(MembersVisitor { names })?;
    // Nothing but white space may follow the object.
    json.end().map(|()| members)
}

struct MembersVisitor<'n, const N: usize> {
    names: &'n NameTable<N>,
}

impl<'b, const N: usize> Visitor<'b> for MembersVisitor<'_, N> {
    type Value = Members<'b, N>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'b>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut members = Members {
            values: SmallVec::new(),
            places: [0; N],
            is_empty: true,
            conflict: None,
            long_texts: LongTexts::new(),
        };
        while let Some(key) = map.next_key_seed(KeySeed { names: self.names })? {
            members.is_empty = false;
            match key {
                Key::Known(index) => {
                    let value: &RawValue = map.next_value()?;
                    members.put(index, self.names.names()[index], value.get());
                }
                Key::Misspelt(index) => {
                    let kind = BodyErrorKind::Misspelt { field: self.names.names()[index] };
                    let value: &RawValue = map.next_value()?;
                    members.object_to(value.get(), kind);
                }
                Key::Other => {
                    // Unknown members are checked to be JSON, but not stored.
                    map.next_value::<IgnoredAny>()?;
                }
            }
        }
        Ok(members)
    }
}

/// Kind of a key, by its text with escapes resolved: `mod\u0065l` is `model`.
enum Key {
    Known(usize),
    Misspelt(usize),
    Other,
}

struct KeySeed<'n, const N: usize> {
    names: &'n NameTable<N>,
}

impl<'b, const N: usize> DeserializeSeed<'b> for KeySeed<'_, N> {
    type Value = Key;

    fn deserialize<D: serde::Deserializer<'b>>(self, deserializer: D) -> Result<Key, D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl<const N: usize> Visitor<'_> for KeySeed<'_, N> {
    type Value = Key;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a field name")
    }

    fn visit_str<E>(self, text: &str) -> Result<Key, E> {
        Ok(match self.names.find(text) {
            Some(index) if self.names.names()[index] == text => Key::Known(index),
            // Equal except for case: lenient engines would take it for the known name.
            Some(index) => Key::Misspelt(index),
            None => Key::Other,
        })
    }
}

#[cfg(test)]
#[path = "members_test.rs"]
mod tests;
