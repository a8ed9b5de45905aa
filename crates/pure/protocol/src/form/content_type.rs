//! Content type of a form.

use http::{HeaderMap, header};

use super::malformed;
use crate::error::{ErrorKind, GatewayError};
use crate::media_type::media_type;

/// Longest boundary in bytes (RFC 2046, section 5.1.1).
const BOUNDARY_BYTES_MAX: usize = 70;

/// Parameters of a form's content type.
#[derive(Debug)]
pub(super) struct FormType<'h> {
    pub(super) boundary: &'h str,
    /// True if servers may decode text in another charset than UTF-8, which has ASCII in common with
    /// it.
    pub(super) is_other_charset: bool,
}

impl<'h> FormType<'h> {
    /// Reads the request's content type.
    ///
    /// # Errors
    /// Returns an error if there is another content type, more than one, or one that could be read
    /// in two ways.
    pub(super) fn of(headers: &'h HeaderMap) -> Result<Self, GatewayError> {
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
        Self::read(parameters).ok_or_else(|| {
            malformed(
                "its Content-Type must be multipart/form-data; boundary=..., with a charset that \
                 contains ASCII at most, each said once",
            )
        })
    }

    /// Reads the parameters; `None` if servers could find another boundary or charset in them.
    fn read(mut rest: &'h str) -> Option<Self> {
        let (mut boundary, mut charset) = (None, None);
        loop {
            let (name, value) = rest.trim_start_matches(' ').split_once('=')?;
            let (value, is_quoted, behind) = read_value(value)?;
            match name {
                "boundary" if boundary.is_none() && is_boundary(value, is_quoted) => {
                    boundary = Some(value);
                }
                // Another charset could turn other bytes into `model`.
                "charset" if charset.is_none() && contains_ascii(value) => charset = Some(value),
                _ if is_ignored(name, value) => {}
                _ => return None,
            }
            rest = match behind.trim_start_matches(' ').strip_prefix(';') {
                Some(more) => more,
                None if behind.trim_matches(' ').is_empty() => "",
                None => return None,
            };
            if rest.trim_matches(' ').is_empty() {
                let is_other_charset = charset.is_some_and(|name| !is_utf8(name));
                return boundary.map(|boundary| Self { boundary, is_other_charset });
            }
        }
    }
}

/// Returns true for a charset in which ASCII text has the bytes of ASCII.
pub(super) fn contains_ascii(charset: &str) -> bool {
    let begins = |with: &str| {
        let begin = charset.get(..with.len());
        begin.is_some_and(|begin| begin.eq_ignore_ascii_case(with))
    };
    is_utf8(charset)
        || charset.eq_ignore_ascii_case("us-ascii")
        || begins("iso-8859-")
        || begins("windows-125")
}

pub(super) fn is_utf8(charset: &str) -> bool {
    charset.eq_ignore_ascii_case("utf-8")
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

/// Returns true if every server takes these characters for the whole boundary, or refuses the form.
fn is_boundary(text: &str, is_quoted: bool) -> bool {
    // Without quotes, servers that accept no such characters there answer with an error.
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"'+_-./:=?".contains(&byte);
    let is_usual = |byte: u8| is_plain(byte) || is_quoted && b"(),".contains(&byte);
    (1..=BOUNDARY_BYTES_MAX).contains(&text.len()) && text.bytes().all(is_usual)
}

/// Returns true for a parameter that has no meaning, and in which a server that searches the header
/// for `boundary=` or `charset=` finds none.
fn is_ignored(name: &str, value: &str) -> bool {
    let is_token = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    let has_meaning = |text: &str| {
        let text = text.to_ascii_lowercase();
        text.contains("boundary") || text.contains("charset")
    };
    !name.is_empty() && name.bytes().all(is_token) && !has_meaning(name) && !has_meaning(value)
}
