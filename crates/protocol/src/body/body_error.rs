//! Why a body is refused, and where.

use std::fmt;

use thiserror::Error;

use crate::{ErrorKind, GatewayError};

/// What is wrong with a body.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BodyErrorKind {
    /// Some bytes are not UTF-8, which JSON between systems has to be.
    NotUtf8,
    /// The text is not JSON, for this reason.
    NotJson(String),
    /// It is JSON, but not an object.
    NotAnObject,
    /// A field has a type that not every engine takes.
    WrongType {
        /// The field, with dots for nesting.
        field: &'static str,
        /// What it should be, e.g. `a string`.
        expected: &'static str,
    },
    /// A field stands there twice: some engines take the first, some the last.
    Duplicate {
        /// The field's name.
        field: &'static str,
    },
    /// A field differs from a known one in case only: some engines take it for the known one.
    Misspelt {
        /// The known field's name.
        field: &'static str,
    },
}

/// A body that can't be routed. Its text is made for the client, and holds nothing of the body.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub struct BodyError {
    kind: BodyErrorKind,
    offset: usize,
    line: usize,
    column: usize,
}

impl BodyError {
    pub(super) fn new(body: &[u8], offset: usize, kind: BodyErrorKind) -> Self {
        let before = &body[..offset.min(body.len())];
        let line_start = memchr::memrchr(b'\n', before).map_or(0, |newline| newline + 1);
        let line = memchr::memchr_iter(b'\n', before).count() + 1;
        Self { kind, offset: before.len(), line, column: before.len() - line_start + 1 }
    }

    /// What is wrong.
    #[must_use]
    pub fn kind(&self) -> &BodyErrorKind {
        &self.kind
    }

    /// Where, in bytes from the start of the body.
    #[must_use]
    pub fn offset(&self) -> usize {
        self.offset
    }

    /// The line of that place, from 1.
    #[must_use]
    pub fn line(&self) -> usize {
        self.line
    }

    /// The place in its line, in bytes from 1.
    #[must_use]
    pub fn column(&self) -> usize {
        self.column
    }

    /// The field to blame, if it is one.
    #[must_use]
    pub fn param(&self) -> Option<&'static str> {
        match self.kind {
            BodyErrorKind::WrongType { field, .. }
            | BodyErrorKind::Duplicate { field }
            | BodyErrorKind::Misspelt { field } => Some(field),
            BodyErrorKind::NotUtf8 | BodyErrorKind::NotJson(_) | BodyErrorKind::NotAnObject => None,
        }
    }
}

impl fmt::Display for BodyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.kind {
            BodyErrorKind::NotUtf8 => write!(f, "The request body is not valid UTF-8")?,
            BodyErrorKind::NotJson(reason) => {
                write!(f, "The request body is not valid JSON: {reason}")?;
            }
            BodyErrorKind::NotAnObject => write!(f, "The request body must be a JSON object")?,
            BodyErrorKind::WrongType { field, expected } => {
                write!(f, "The field '{field}' must be {expected}")?;
            }
            BodyErrorKind::Duplicate { field } => {
                write!(f, "The field '{field}' is given more than once")?;
            }
            BodyErrorKind::Misspelt { field } => {
                write!(f, "A field is spelt like '{field}' except for upper and lower case")?;
            }
        }
        write!(f, " (line {}, column {}, byte {}).", self.line, self.column, self.offset)
    }
}

impl From<BodyError> for GatewayError {
    fn from(error: BodyError) -> Self {
        Self { param: error.param(), ..Self::new(ErrorKind::BadRequest, error.to_string()) }
    }
}
