//! Content type of a form.

use http::{HeaderMap, header};

use super::malformed;
use crate::error::{ErrorKind, GatewayError};
use crate::media_type::media_type;

/// Longest boundary in bytes (RFC 2046, section 5.1.1).
const BOUNDARY_BYTES_MAX: usize = 70;

/// Returns the boundary from the request's content type.
///
/// # Errors
/// Returns an error if there is another content type, more than one, or one that could be read in
/// two ways.
pub(super) fn boundary(headers: &HeaderMap) -> Result<&str, GatewayError> {
    let mut values = headers.get_all(header::CONTENT_TYPE).iter();
    let first = values.next().and_then(|value| value.to_str().ok()).unwrap_or_default();
    if values.next().is_some() {
        return Err(malformed("there is more than one Content-Type"));
    }
    let (_, parameters) = first.split_once(';').unwrap_or((first, ""));
    if !media_type(first.as_bytes()).eq_ignore_ascii_case(b"multipart/form-data") {
        let message = "multipart/form-data is needed here";
        return Err(GatewayError::new(ErrorKind::UnsupportedMediaType, message));
    }
    read_parameters(parameters).ok_or_else(|| {
        malformed("its Content-Type must be multipart/form-data; boundary=..., each said once")
    })
}

/// Returns the boundary among the parameters; `None` if a parameter is unknown or malformed.
fn read_parameters(mut rest: &str) -> Option<&str> {
    let (mut boundary, mut has_charset) = (None, false);
    loop {
        let (name, value) = rest.trim_start_matches(' ').split_once('=')?;
        let (value, is_quoted, behind) = read_value(value)?;
        match name {
            "boundary" if boundary.is_none() && is_boundary(value, is_quoted) => {
                boundary = Some(value);
            }
            // Another charset could turn other bytes into `model`.
            "charset" if !has_charset && value.eq_ignore_ascii_case("utf-8") => has_charset = true,
            _ => return None,
        }
        match behind.trim_start_matches(' ').strip_prefix(';') {
            Some(more) => rest = more,
            None if behind.trim_matches(' ').is_empty() => return boundary,
            None => return None,
        }
    }
}

/// Returns a parameter's value, true if it was quoted, and the text behind it; `None` with an
/// escape.
fn read_value(text: &str) -> Option<(&str, bool, &str)> {
    if let Some(quoted) = text.strip_prefix('"') {
        let (value, behind) = quoted.split_once('"')?;
        return (!value.contains('\\')).then_some((value, true, behind));
    }
    let end = text.find([';', ' ']).unwrap_or(text.len());
    Some((&text[..end], false, &text[end..]))
}

/// Returns true if the boundary has only characters that every server accepts.
fn is_boundary(text: &str, is_quoted: bool) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"'+_-.".contains(&byte);
    let is_usual = |byte: u8| is_plain(byte) || is_quoted && b"()/:=?,".contains(&byte);
    (1..=BOUNDARY_BYTES_MAX).contains(&text.len()) && text.bytes().all(is_usual)
}
