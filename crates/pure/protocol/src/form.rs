//! Multipart uploads, parsed so strictly that no server finds other fields in the same bytes.
//!
//! Servers differ in what they tolerate: parameters in other spellings, repeated parameters, line
//! feeds alone, escapes. Input that two servers may read differently is refused. Input that servers
//! read alike or answer with an error is accepted.

mod content_type;
mod disposition;
mod part;

use std::ops::Range;

use bytes::Bytes;
use http::HeaderMap;
use memchr::memmem::Finder;

use self::content_type::{FormType, contains_ascii};
use self::disposition::is_like_model;
use self::part::Part;
use crate::error::{ErrorKind, GatewayError};
use crate::splice::{Edit, Segments, apply};

/// Largest number of parts of a form; servers usually stop at 1,000.
const PARTS_MAX: usize = 1000;
/// Longest name of a model in bytes.
const MODEL_BYTES_MAX: usize = 1024;
const CRLF: &[u8] = b"\r\n";
/// Headers of a part `model` that all servers read as text in UTF-8.
static MODEL_HEAD: &[u8] = b"Content-Disposition: form-data; name=\"model\"";

/// Parsed fields of a form.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Form<'b> {
    /// Value of the field `model`; `None` without that field.
    pub model: Option<&'b str>,
    /// Names of all fields, `model` included, in their order. A name may occur more than once.
    pub names: Vec<&'b str>,
    /// Place of the headers of the part `model`, if they have a content type.
    typed_head: Option<Range<usize>>,
}

impl Form<'_> {
    /// Returns the form for servers. `body` must be the one that this form was read from. It stays
    /// as it is, except that a content type of the part `model` is removed: because of it, some
    /// servers would take the name for a file, for JSON, or for text in another charset.
    #[must_use]
    pub fn for_servers(&self, body: &Bytes) -> Segments {
        let head = self.typed_head.clone();
        apply(body, head.map(|at| Edit { at, with: Bytes::from_static(MODEL_HEAD) }))
    }
}

/// Parses the fields of a multipart form.
///
/// # Errors
/// Returns `unsupported_media_type` for another content type. Returns an error if servers could
/// read the form in two ways, or if it names the model twice.
pub fn read_form<'b>(headers: &HeaderMap, body: &'b [u8]) -> Result<Form<'b>, GatewayError> {
    let FormType { boundary, is_other_charset } = FormType::of(headers)?;
    let mut is_ascii_only = is_other_charset;
    let mut form = Form::default();
    for part in parts(body, boundary)? {
        let at = part.start;
        let part = Part::read(&body[part])?;
        if part.name == "model" {
            if form.model.is_some() {
                return Err(malformed("the field model occurs twice").with_param("model"));
            }
            form.model = Some(model_in(&part)?);
            form.typed_head = part.has_content_type.then(|| at..at + part.head.len());
        } else {
            check_name(&part)?;
            is_ascii_only |= part.name == "_charset_" && !part.value.eq_ignore_ascii_case(b"utf-8");
        }
        form.names.push(part.name);
    }
    if is_ascii_only && !form.model.unwrap_or_default().is_ascii() {
        let why = "the field model is not ASCII, and the charset is not UTF-8";
        return Err(malformed(why).with_param("model"));
    }
    Ok(form)
}

/// Returns the place of each part, headers included.
fn parts(body: &[u8], boundary: &str) -> Result<Vec<Range<usize>>, GatewayError> {
    let delimiter = format!("--{boundary}");
    let mut parts = Vec::new();
    // Offset behind the line of the last delimiter; `None` before the first one.
    let mut begun = None;
    let mut is_ended = false;
    for at in Finder::new(&delimiter).find_iter(body) {
        let (before, behind) = (&body[..at], &body[at + delimiter.len()..]);
        // Servers skip what stands before the first boundary and behind the last one, as long as
        // there is no other.
        let is_line = before.ends_with(CRLF) || at == 0;
        if !is_line || is_ended {
            return Err(malformed("the boundary stands where no part begins or ends"));
        }
        if let Some(begun) = begun {
            let end = at - CRLF.len();
            if end < begun {
                return Err(malformed("a part has no headers"));
            }
            parts.push(begun..end);
        }
        if parts.len() > PARTS_MAX {
            return Err(malformed("the form has too many parts"));
        }
        let after_end = behind.strip_prefix(b"--");
        is_ended = after_end.is_some_and(|rest| rest.is_empty() || rest.starts_with(CRLF));
        if !is_ended && !behind.starts_with(CRLF) {
            return Err(malformed("a boundary is followed by something else than a line end"));
        }
        begun = Some(at + delimiter.len() + CRLF.len());
    }
    match begun {
        _ if is_ended => Ok(parts),
        None => Err(malformed("its boundary does not occur in it")),
        Some(_) => Err(malformed("it does not end with its boundary")),
    }
}

fn model_in<'b>(part: &Part<'b>) -> Result<&'b str, GatewayError> {
    if part.is_file {
        return Err(malformed("the field model is a file").with_param("model"));
    }
    if part.is_encoded() {
        return Err(malformed("the field model has a transfer encoding").with_param("model"));
    }
    let is_short = part.value.len() <= MODEL_BYTES_MAX;
    let text = std::str::from_utf8(part.value).ok().filter(|_| is_short);
    text.filter(|text| !text.contains(char::is_control))
        .ok_or_else(|| malformed("the field model is not the name of a model").with_param("model"))
}

/// Refuses names that some servers take for `model`, and a `_charset_` field that changes the
/// charset.
fn check_name(part: &Part<'_>) -> Result<(), GatewayError> {
    if is_like_model(part.name.as_bytes()) {
        let why = format!("the field {:?} could be taken for model", part.name);
        return Err(malformed(&why).with_param("model"));
    }
    let is_usual = || std::str::from_utf8(part.value).is_ok_and(contains_ascii);
    if part.name == "_charset_" && (part.is_encoded() || !is_usual()) {
        return Err(malformed("forms are read in UTF-8, or in a charset that contains ASCII"));
    }
    Ok(())
}

/// Returns the error for a form that is refused.
fn malformed(why: &str) -> GatewayError {
    GatewayError::new(ErrorKind::BadRequest, format!("malformed multipart body: {why}"))
}

#[cfg(test)]
mod form_test;
