//! Errors of reading a body, with their place.

use std::fmt;

use thiserror::Error;

use crate::{ErrorKind, GatewayError};

/// Reason why a body is refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BodyErrorKind {
    /// The body has bytes that are not UTF-8.
    NotUtf8,
    /// The body is not JSON, for this reason.
    NotJson(String),
    /// The body is JSON, but not an object.
    NotAnObject,
    /// A field has a type that not every engine accepts.
    WrongType {
        /// Name of the field, with dots for nesting.
        field: &'static str,
        /// Description of the expected type, e.g. `a string`.
        expected: &'static str,
    },
    /// A field is given twice: some engines take the first value, some the last.
    Duplicate {
        /// Name of the field.
        field: &'static str,
    },
    /// A field differs from a known one only in case: some engines take it for the known one.
    Misspelt {
        /// Name of the known field.
        field: &'static str,
    },
}

/// Error: a body cannot be routed. The message is for the client and contains nothing of the body.
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

    /// Returns the reason.
    #[must_use]
    pub fn kind(&self) -> &BodyErrorKind {
        &self.kind
    }

    /// Returns the place of the error, in bytes from the start of the body.
    #[must_use]
    pub fn offset(&self) -> usize {
        self.offset
    }

    /// Returns the line of the error, from 1.
    #[must_use]
    pub fn line(&self) -> usize {
        self.line
    }

    /// Returns the place of the error in its line, in bytes from 1.
    #[must_use]
    pub fn column(&self) -> usize {
        self.column
    }

    /// Returns the field that the error is about; `None` if the error is not about a field.
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
