//! Picks known members out of a JSON object without looking into the others.

use std::borrow::Cow;
use std::fmt;
use std::ops::Range;

use serde::de::{DeserializeSeed, Deserializer as _, IgnoredAny, MapAccess, Visitor};
use serde_json::value::RawValue;
use smallvec::SmallVec;

use super::{BodyError, BodyErrorKind, NameTable, TextField};

/// Known members that a usual body has at most.
const USUAL: usize = 12;

/// A body that is known to be UTF-8, so that its slices needn't be checked again.
pub(crate) struct Source<'b> {
    text: &'b str,
    object_start: usize,
}

/// The values of `N` known members of one object, as they stand in the body.
pub(crate) struct Members<'b, const N: usize> {
    values: SmallVec<[&'b RawValue; USUAL]>,
    /// Where each value stands in `values`, counted from 1; 0 if there is none. Most names are rare, and
    /// this is moved about.
    places: [u8; N],
    is_empty: bool,
    conflict: Option<Conflict<'b>>,
}

/// The first member that engines would not agree on. Kept until the whole object has proved to
/// be JSON, because a broken body should be called broken.
struct Conflict<'b> {
    value: &'b RawValue,
    kind: BodyErrorKind,
}

impl<'b> Source<'b> {
    pub(crate) fn new(body: &'b [u8]) -> Result<Self, BodyError> {
        let text = std::str::from_utf8(body)
            .map_err(|error| BodyError::new(body, error.valid_up_to(), BodyErrorKind::NotUtf8))?;
        if text.starts_with('\u{feff}') {
            let reason = "it starts with a byte order mark".to_owned();
            return Err(BodyError::new(body, 0, BodyErrorKind::NotJson(reason)));
        }
        let is_space = |byte: &u8| matches!(byte, b' ' | b'\t' | b'\n' | b'\r');
        let object_start = body.iter().take_while(|byte| is_space(byte)).count();
        Ok(Self { text, object_start })
    }

    /// The text from the body's `{` to its very end.
    pub(crate) fn object(&self) -> Result<&'b str, BodyError> {
        let text = &self.text[self.object_start..];
        if text.starts_with('{') {
            return Ok(text);
        }
        match serde_json::from_str::<IgnoredAny>(text) {
            Ok(_) => Err(self.error(self.object_start, BodyErrorKind::NotAnObject)),
            Err(error) => Err(self.syntax_error(text, &error)),
        }
    }

    pub(crate) fn object_start(&self) -> usize {
        self.object_start
    }

    /// Reads one object that `part`, a piece of the body, consists of.
    pub(crate) fn members<const N: usize>(
        &self,
        part: &'b str,
        names: &NameTable<N>,
    ) -> Result<Members<'b, N>, BodyError> {
        let mut json = serde_json::Deserializer::from_str(part);
        let members = json
            .deserialize_map(MembersVisitor { names })
            .and_then(|members| json.end().map(|()| members))
            .map_err(|error| self.syntax_error(part, &error))?;
        match members.conflict {
            Some(Conflict { value, kind }) => Err(self.error(self.offset(value.get()), kind)),
            None => Ok(members),
        }
    }

    /// Where a value stands in the body.
    pub(crate) fn span(&self, raw: &RawValue) -> Range<usize> {
        let start = self.offset(raw.get());
        start..start + raw.get().len()
    }

    /// The text of a string member; `None` if it is null.
    pub(crate) fn text(
        &self,
        raw: &'b RawValue,
        name: &'static str,
    ) -> Result<Option<TextField<'b>>, BodyError> {
        let json = raw.get();
        if json == "null" {
            return Ok(None);
        }
        let Some(inner) = json.strip_prefix('"').and_then(|rest| rest.strip_suffix('"')) else {
            return Err(self.wrong_type(raw, name, "a string"));
        };
        let value = if inner.contains('\\') {
            // Only half of a surrogate pair can still be wrong here.
            let text = serde_json::from_str(json);
            Cow::Owned(text.map_err(|error| self.syntax_error(json, &error))?)
        } else {
            Cow::Borrowed(inner)
        };
        Ok(Some(TextField { value, span: self.span(raw) }))
    }

    pub(crate) fn wrong_type(
        &self,
        raw: &RawValue,
        field: &'static str,
        expected: &'static str,
    ) -> BodyError {
        self.error(self.offset(raw.get()), BodyErrorKind::WrongType { field, expected })
    }

    /// The library knows line and column in `part`, and says them in its message, too.
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

    /// `part` is always a slice of the body, so the difference of addresses is its offset.
    fn offset(&self, part: &str) -> usize {
        part.as_ptr().addr().saturating_sub(self.text.as_ptr().addr())
    }
}

impl<'b, const N: usize> Members<'b, N> {
    /// The value of the name at `index`, even if it is null.
    pub(crate) fn value(&self, index: usize) -> Option<&'b RawValue> {
        self.values.get(usize::from(self.places[index]).checked_sub(1)?).copied()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.is_empty
    }

    fn put(&mut self, index: usize, name: &'static str, value: &'b RawValue) {
        if self.places[index] != 0 {
            self.object_to(value, BodyErrorKind::Duplicate { field: name });
        } else {
            self.values.push(value);
            // Each name has one place, and a table has fewer than 255 names.
            self.places[index] = self.values.len() as u8;
        }
    }

    fn object_to(&mut self, value: &'b RawValue, kind: BodyErrorKind) {
        self.conflict.get_or_insert(Conflict { value, kind });
    }
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
        let mut members =
            Members { values: SmallVec::new(), places: [0; N], is_empty: true, conflict: None };
        while let Some(key) = map.next_key_seed(KeySeed { names: self.names })? {
            members.is_empty = false;
            match key {
                Key::Known(index) => {
                    members.put(index, self.names.names()[index], map.next_value()?);
                }
                Key::Misspelt(index) => {
                    let kind = BodyErrorKind::Misspelt { field: self.names.names()[index] };
                    members.object_to(map.next_value()?, kind);
                }
                Key::Other => {
                    map.next_value::<IgnoredAny>()?;
                }
            }
        }
        Ok(members)
    }
}

/// What a key is, by its text after escapes are resolved: `mod\u0065l` is `model`.
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
            Some(index) => Key::Misspelt(index),
            None => Key::Other,
        })
    }
}
