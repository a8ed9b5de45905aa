//! Multipart uploads, parsed so strictly that no server finds other fields in the same bytes.
//!
//! Servers differ in what they tolerate: parameters in other spellings, repeated parameters, line
//! feeds alone, text before the first boundary. Input that two servers may read differently is
//! refused.

mod content_type;
mod part;

use http::HeaderMap;
use memchr::memmem::Finder;

use self::content_type::boundary;
use self::part::Part;
use crate::error::{ErrorKind, GatewayError};

/// Largest number of parts of a form; servers usually stop at 1,000.
const PARTS_MAX: usize = 1000;
/// Longest name of a model in bytes.
const MODEL_BYTES_MAX: usize = 1024;
const CRLF: &[u8] = b"\r\n";

/// Parsed fields of a form.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Form<'b> {
    /// Value of the field `model`; `None` without that field.
    pub model: Option<&'b str>,
    /// Names of all fields, `model` included, in their order. A name may occur more than once.
    pub names: Vec<&'b str>,
}

/// Parses the fields of a multipart form.
///
/// # Errors
/// Returns `unsupported_media_type` for another content type. Returns an error if servers could
/// read the form in two ways, or if it names the model twice.
pub fn read_form<'b>(headers: &HeaderMap, body: &'b [u8]) -> Result<Form<'b>, GatewayError> {
    let boundary = boundary(headers)?;
    let mut form = Form::default();
    for part in parts(body, boundary)? {
        let part = Part::read(part)?;
        if part.name == "model" {
            if form.model.is_some() {
                return Err(malformed("the field model occurs twice").with_param("model"));
            }
            form.model = Some(model_in(&part)?);
        } else {
            check_name(&part)?;
        }
        form.names.push(part.name);
    }
    Ok(form)
}

/// Returns the bytes of each part, headers included.
fn parts<'b>(body: &'b [u8], boundary: &str) -> Result<Vec<&'b [u8]>, GatewayError> {
    let delimiter = format!("--{boundary}");
    let mut parts = Vec::new();
    // Offset behind the line of the last delimiter; `None` before the first one.
    let mut begun = None;
    for at in Finder::new(&delimiter).find_iter(body) {
        let (before, behind) = (&body[..at], &body[at + delimiter.len()..]);
        // Text before the first boundary is refused: some servers skip it, others do not.
        let is_line = if begun.is_none() { before.is_empty() } else { before.ends_with(CRLF) };
        if !is_line {
            return Err(malformed("the boundary stands where no part begins or ends"));
        }
        if let Some(begun) = begun {
            let part = body.get(begun..at - CRLF.len());
            parts.push(part.ok_or_else(|| malformed("a part has no headers"))?);
        }
        if parts.len() > PARTS_MAX {
            return Err(malformed("the form has too many parts"));
        }
        // The last boundary must end the body: some servers would read on behind it.
        if matches!(behind, b"--" | b"--\r\n") {
            return Ok(parts);
        }
        if !behind.starts_with(CRLF) {
            return Err(malformed("a boundary is followed by something else than a line end"));
        }
        begun = Some(at + delimiter.len() + CRLF.len());
    }
    let what = match begun {
        None => "it does not begin with its boundary",
        Some(_) => "it does not end with its boundary",
    };
    Err(malformed(what))
}

fn model_in<'b>(part: &Part<'b>) -> Result<&'b str, GatewayError> {
    if part.is_file {
        return Err(malformed("the field model is a file").with_param("model"));
    }
    if !part.is_plain_text() {
        let why = "the field model is not text in UTF-8";
        return Err(malformed(why).with_param("model"));
    }
    let is_short = part.value.len() <= MODEL_BYTES_MAX;
    let text = std::str::from_utf8(part.value).ok().filter(|_| is_short);
    text.filter(|text| !text.contains(char::is_control))
        .ok_or_else(|| malformed("the field model is not the name of a model").with_param("model"))
}

/// Refuses names that some servers take for `model`, and a `_charset_` field that changes the
/// charset.
fn check_name(part: &Part<'_>) -> Result<(), GatewayError> {
    let before_bracket = part.name.split('[').next().unwrap_or_default();
    if before_bracket.eq_ignore_ascii_case("model") {
        let why = format!("the field {:?} could be taken for model", part.name);
        return Err(malformed(&why).with_param("model"));
    }
    if part.name == "_charset_" && !part.value.eq_ignore_ascii_case(b"utf-8") {
        return Err(malformed("forms are read in UTF-8 only"));
    }
    Ok(())
}

/// Returns the error for a form that is refused.
fn malformed(why: &str) -> GatewayError {
    GatewayError::new(ErrorKind::BadRequest, format!("malformed multipart body: {why}"))
}

#[cfg(test)]
mod form_test;
