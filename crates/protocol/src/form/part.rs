//! Part of a form: its headers and its value.

use memchr::memmem;

use super::{CRLF, malformed};
use crate::error::GatewayError;
use crate::media_type::media_type;

/// Longest headers of a part in bytes.
const HEAD_BYTES_MAX: usize = 8 << 10;

/// Part of a form.
#[derive(Debug, Default)]
pub(super) struct Part<'b> {
    pub(super) name: &'b str,
    /// True if the part has a file name: servers that tell files from text take it for a file.
    pub(super) is_file: bool,
    pub(super) value: &'b [u8],
    content_type: Option<&'b str>,
    encoding: Option<&'b str>,
    length: Option<&'b str>,
}

impl<'b> Part<'b> {
    /// Parses the bytes between two boundaries.
    ///
    /// # Errors
    /// Returns an error if servers could read the headers in two ways.
    pub(super) fn read(bytes: &'b [u8]) -> Result<Self, GatewayError> {
        let end = memmem::find(bytes, b"\r\n\r\n").filter(|end| *end <= HEAD_BYTES_MAX);
        let end = end.ok_or_else(|| malformed("a part has no headers, or too long ones"))?;
        let head = std::str::from_utf8(&bytes[..end]);
        let head = head.map_err(|_| malformed("a part's headers are not UTF-8"))?;
        let mut part = Self { value: &bytes[end + 2 * CRLF.len()..], ..Self::default() };
        let mut disposition = None;
        for line in head.split("\r\n") {
            let (name, value) = read_header(line)
                .ok_or_else(|| malformed("a part has a header that can't be read"))?;
            let place = match name {
                _ if name.eq_ignore_ascii_case("content-disposition") => &mut disposition,
                _ if name.eq_ignore_ascii_case("content-type") => &mut part.content_type,
                _ if name.eq_ignore_ascii_case("content-transfer-encoding") => &mut part.encoding,
                _ if name.eq_ignore_ascii_case("content-length") => &mut part.length,
                _ => continue,
            };
            // Of repeated headers, some servers take the first and some the last.
            if place.replace(value).is_some() {
                return Err(malformed("a part says one of its headers twice"));
            }
        }
        let disposition = disposition.and_then(read_disposition).ok_or_else(|| {
            malformed(
                "a part's Content-Disposition must be form-data; name=\"...\", for files with ; \
                 filename=\"...\" behind it, each said once in this spelling",
            )
        })?;
        (part.name, part.is_file) = disposition;
        part.check()?;
        Ok(part)
    }

    /// Returns true if the content type, which some servers obey, declares the value as plain text
    /// in UTF-8.
    pub(super) fn is_plain_text(&self) -> bool {
        self.content_type.is_none_or(|kind| {
            let (_, parameter) = kind.split_once(';').unwrap_or((kind, "charset=utf-8"));
            let charset = parameter.trim_start_matches(' ').strip_prefix("charset=");
            let charset = charset.unwrap_or_default().trim_matches('"');
            media_type(kind.as_bytes()).eq_ignore_ascii_case(b"text/plain")
                && (charset.eq_ignore_ascii_case("utf-8")
                    || charset.eq_ignore_ascii_case("us-ascii"))
        })
    }

    fn check(&self) -> Result<(), GatewayError> {
        let is_bare = |coding: &str| {
            ["7bit", "8bit", "binary"].iter().any(|bare| coding.eq_ignore_ascii_case(bare))
        };
        if !self.encoding.is_none_or(is_bare) {
            return Err(malformed("a part has a transfer encoding, which servers may undo or not"));
        }
        // A server that obeys a wrong length would find other parts.
        if self.length.is_some_and(|length| length.parse() != Ok(self.value.len())) {
            return Err(malformed("a part is not as long as its Content-Length says"));
        }
        let kind = self.content_type.map(|kind| media_type(kind.as_bytes()));
        let kind = kind.and_then(|kind| kind.split(|byte| *byte == b'/').next());
        // Some servers read nested forms as further fields.
        if kind.is_some_and(|kind| kind.eq_ignore_ascii_case(b"multipart")) {
            return Err(malformed("a part is a form itself"));
        }
        Ok(())
    }
}

/// Returns the name and value of a header line; `None` if it has unusual characters.
fn read_header(line: &str) -> Option<(&str, &str)> {
    let (name, value) = line.split_once(':')?;
    let is_name = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
    let is_usual = !name.is_empty() && name.bytes().all(is_name);
    (is_usual && !value.contains(char::is_control)).then_some((name, value.trim_matches(' ')))
}

/// Returns the name in a Content-Disposition, and true if there is a file name. Returns `None` for
/// any other spelling than the accepted one.
///
/// Values may be unquoted if they contain no special characters: .NET writes them so, and adds a
/// second file name as `filename*` behind the first.
fn read_disposition(value: &str) -> Option<(&str, bool)> {
    let (name, rest) = read_parameter(value.strip_prefix("form-data; name=")?)?;
    let is_name = |byte: u8| byte.is_ascii_graphic() && !matches!(byte, b'%' | b';' | b'\'');
    if name.is_empty() || !name.bytes().all(is_name) {
        return None;
    }
    if rest.is_empty() {
        return Some((name, false));
    }
    let (filename, rest) = read_parameter(rest.strip_prefix("; filename=")?)?;
    // A server that looks for the next semicolon and ignores quotes must find no parameter behind
    // it.
    if filename.contains(';') && filename.contains('=') {
        return None;
    }
    let is_extended =
        |byte: u8| byte.is_ascii_alphanumeric() || b"-_.!~*'()%+&$#^`|{}".contains(&byte);
    let extended = rest.strip_prefix("; filename*=");
    let is_over = rest.is_empty() || extended.is_some_and(|text| text.bytes().all(is_extended));
    is_over.then_some((name, true))
}

/// Returns the value at the beginning of `text`, quoted or bare, and the text behind it. Escapes
/// are not accepted: clients write a quote as `%22`.
fn read_parameter(text: &str) -> Option<(&str, &str)> {
    let (value, rest) = match text.strip_prefix('"') {
        Some(quoted) => quoted.split_once('"')?,
        None => {
            let is_bare = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
            let end = text.bytes().position(|byte| !is_bare(byte)).unwrap_or(text.len());
            text.split_at(end)
        }
    };
    let is_whole = rest.is_empty() || rest.starts_with(';');
    let is_said = !value.is_empty() || text.starts_with('"');
    (is_whole && is_said && !value.contains('\\')).then_some((value, rest))
}
