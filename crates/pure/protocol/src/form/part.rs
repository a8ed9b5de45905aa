//! Part of a form: its headers and its value.

use memchr::memmem;

use super::disposition::Disposition;
use super::{CRLF, malformed};
use crate::error::GatewayError;
use crate::media_type::media_type;

/// Longest headers of a part in bytes.
const HEAD_BYTES_MAX: usize = 8 << 10;

/// Part of a form.
#[derive(Debug)]
pub(super) struct Part<'b> {
    pub(super) name: &'b str,
    /// True if the part has a file name: servers that distinguish files from text take it for a
    /// file.
    pub(super) is_file: bool,
    /// Headers, without the empty line behind them.
    pub(super) head: &'b [u8],
    pub(super) value: &'b [u8],
    /// True if a content type says what the value is.
    pub(super) has_content_type: bool,
    encoding: Option<&'b [u8]>,
}

impl<'b> Part<'b> {
    /// Parses the bytes between two boundaries.
    ///
    /// # Errors
    /// Returns an error if servers could read the headers in two ways.
    pub(super) fn read(bytes: &'b [u8]) -> Result<Self, GatewayError> {
        let end = memmem::find(bytes, b"\r\n\r\n").filter(|end| *end <= HEAD_BYTES_MAX);
        let end = end.ok_or_else(|| malformed("a part has no headers, or too long ones"))?;
        let value = &bytes[end + 2 * CRLF.len()..];
        let [mut disposition, mut content_type, mut encoding, mut length] = [None; 4];
        for line in bytes[..end + CRLF.len()].split_inclusive(|byte| *byte == b'\n') {
            let (name, value) = read_header(line)
                .ok_or_else(|| malformed("a part has a header that can't be read"))?;
            let place = match name {
                _ if name.eq_ignore_ascii_case(b"content-disposition") => &mut disposition,
                _ if name.eq_ignore_ascii_case(b"content-type") => &mut content_type,
                _ if name.eq_ignore_ascii_case(b"content-transfer-encoding") => &mut encoding,
                _ if name.eq_ignore_ascii_case(b"content-length") => &mut length,
                _ => continue,
            };
            // Of repeated headers, some servers take the first and some the last.
            if place.replace(value).is_some() {
                return Err(malformed("a part says one of its headers twice"));
            }
        }
        let Disposition { name, is_file } =
            disposition.and_then(Disposition::read).ok_or_else(|| {
                malformed(
                    "a part's Content-Disposition must be form-data; name=\"...\", for files with \
                     filename=\"...\", each said once in this spelling",
                )
            })?;
        // A server that obeys a wrong length would find other parts.
        if length.is_some_and(|length| !is_number(length, value.len())) {
            return Err(malformed("a part is not as long as its Content-Length says"));
        }
        // Some servers read nested forms as further fields.
        if content_type.is_some_and(|kind| media_class(kind).eq_ignore_ascii_case(b"multipart")) {
            return Err(malformed("a part is a form itself"));
        }
        let has_content_type = content_type.is_some();
        Ok(Self { name, is_file, head: &bytes[..end], value, has_content_type, encoding })
    }

    /// Returns true if the value has a transfer encoding, which some servers undo and others do not.
    pub(super) fn is_encoded(&self) -> bool {
        let is_bare = |coding: &[u8]| {
            ["7bit", "8bit", "binary"]
                .iter()
                .any(|bare| coding.eq_ignore_ascii_case(bare.as_bytes()))
        };
        !self.encoding.is_none_or(is_bare)
    }
}

/// Returns the name and value of a header line; `None` if it has unusual characters, or does not end
/// in CR LF. Bytes that are not UTF-8 pass: old clients write names of files in Latin-1.
fn read_header(line: &[u8]) -> Option<(&[u8], &[u8])> {
    let line = line.strip_suffix(CRLF)?;
    let colon = memchr::memchr(b':', line)?;
    let (name, value) = (&line[..colon], &line[colon + 1..]);
    let is_name = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
    let is_usual = !name.is_empty() && name.iter().all(is_name);
    (is_usual && !value.iter().any(u8::is_ascii_control)).then_some((name, value.trim_ascii()))
}

fn is_number(text: &[u8], number: usize) -> bool {
    text.iter().all(u8::is_ascii_digit)
        && std::str::from_utf8(text).ok().and_then(|text| text.parse().ok()) == Some(number)
}

/// Returns the part of a content type before the slash.
fn media_class(kind: &[u8]) -> &[u8] {
    media_type(kind).split(|byte| *byte == b'/').next().unwrap_or_default()
}
