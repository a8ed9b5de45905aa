//! Multipart uploads, read so strictly that no server finds other fields in the same bytes.
//!
//! Servers differ in what they forgive: parameters in other spellings, repeated parameters, line
//! feeds alone, text before the first boundary. Whatever two of them may read in two ways is refused.

mod content_type;
mod part;

use http::HeaderMap;
use memchr::memmem::Finder;

use self::content_type::boundary;
use self::part::Part;
use crate::error::{ErrorKind, GatewayError};

/// Most parts of a form; servers usually stop at 1,000.
const PARTS_MAX: usize = 1000;
/// Longest name of a model in bytes.
const MODEL_BYTES_MAX: usize = 1024;
const CRLF: &[u8] = b"\r\n";

/// What is read of a form.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Form<'b> {
    /// The value of the field `model`, if there is one.
    pub model: Option<&'b str>,
    /// The names of all fields, `model` included, in their order. A name may occur more than once.
    pub names: Vec<&'b str>,
}

/// Reads the fields of a multipart form.
///
/// # Errors
/// If the content type is another one (`unsupported_media_type`), if servers could read the form in
/// two ways, or if it names the model twice.
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

/// The bytes of each part, its headers included.
fn parts<'b>(body: &'b [u8], boundary: &str) -> Result<Vec<&'b [u8]>, GatewayError> {
    let delimiter = format!("--{boundary}");
    let mut parts = Vec::new();
    // Behind the line of the last delimiter.
    let mut begun = None;
    for at in Finder::new(&delimiter).find_iter(body) {
        let (before, behind) = (&body[..at], &body[at + delimiter.len()..]);
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

/// Refuses names that some servers take for `model`, and the field that changes the charset of others.
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

/// The error for a form that is refused.
fn malformed(why: &str) -> GatewayError {
    GatewayError::new(ErrorKind::BadRequest, format!("malformed multipart body: {why}"))
}

#[cfg(test)]
mod form_test;
