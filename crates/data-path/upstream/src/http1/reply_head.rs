//! Reads the head of a reply.

use std::mem::MaybeUninit;
use std::ops::Range;

use bytes::BytesMut;
use http::response::Parts;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Response, StatusCode, Version, header};
use httparse::{Header, ParserConfig, Status};
use hyper::ext::ReasonPhrase;
use smallvec::SmallVec;

use crate::http1::body_decoder::BodyDecoder;
use crate::http1::error::Http1Error;

/// Fields for which there is room on the stack: more than most heads have.
pub(super) const FIELDS_USUAL: usize = 100;
/// Most fields of a head or of trailers.
pub(super) const FIELDS_MAX: usize = 8_192;

/// Head of a reply, and what follows from it.
#[derive(Debug)]
pub(super) struct ReplyHead {
    pub(super) parts: Parts,
    /// Decoder of the body.
    pub(super) body: BodyDecoder,
    /// True if the connection can serve another request once the body has ended.
    pub(super) keeps_alive: bool,
}

impl ReplyHead {
    /// Returns true if the reply itself is still to come. A switch of protocols is followed by no
    /// reply.
    pub(super) fn is_interim(&self) -> bool {
        let status = self.parts.status;
        status.is_informational() && status != StatusCode::SWITCHING_PROTOCOLS
    }
}

/// A field by the positions of its name and its value.
type HeaderRanges = (Range<usize>, Range<usize>);

/// Takes a head off `buffer`; `None` if it is not complete. `method` is that of the request, and
/// `spare` an empty map, whose memory the fields get.
///
/// # Errors
///
/// Returns an error if the head is malformed, or does not say where its body ends.
pub(super) fn take_head(
    buffer: &mut BytesMut,
    method: &Method,
    spare: &mut HeaderMap,
) -> Result<Option<ReplyHead>, Http1Error> {
    let mut usual = [const { MaybeUninit::<Header<'_>>::uninit() }; FIELDS_USUAL];
    let mut all;
    let mut reply = httparse::Response::new(&mut []);
    let parser = ParserConfig::default();
    let mut parsed = parser.parse_response_with_uninit_headers(&mut reply, buffer, &mut usual);
    if parsed == Err(httparse::Error::TooManyHeaders) {
        all = vec![MaybeUninit::uninit(); FIELDS_MAX];
        reply = httparse::Response::new(&mut []);
        parsed = parser.parse_response_with_uninit_headers(&mut reply, buffer, &mut all);
    }
    let Status::Complete(length) = parsed.map_err(Http1Error::Fields)? else { return Ok(None) };
    let (code, version) = (reply.code.unwrap_or_default(), reply.version);
    let start = buffer.as_ptr().addr();
    let place = |part: &[u8]| {
        let from = part.as_ptr().addr() - start;
        from..from + part.len()
    };
    let places: SmallVec<[HeaderRanges; 16]> =
        reply.headers.iter().map(|it| (place(it.name.as_bytes()), place(it.value))).collect();
    let status = StatusCode::from_u16(code).map_err(|_| Http1Error::Unclear("no valid status"))?;
    let reason = reply.reason.filter(|reason| *reason != status.canonical_reason().unwrap_or(""));
    let reason = reason.and_then(|reason| ReasonPhrase::try_from(reason.to_owned()).ok());
    let bytes = buffer.split_to(length).freeze();
    let mut headers = std::mem::take(spare);
    headers.reserve(places.len());
    for (name, value) in places {
        let name = HeaderName::from_bytes(&bytes[name]);
        let value = HeaderValue::from_maybe_shared(bytes.slice(value));
        let (Ok(name), Ok(value)) = (name, value) else {
            return Err(Http1Error::Unclear("an invalid field"));
        };
        headers.try_append(name, value).map_err(|_| Http1Error::Unclear("too many fields"))?;
    }
    let is_old = version == Some(0);
    let body = decoder(status, method, is_old, &mut headers)?;
    let keeps_alive = keeps_alive(&headers, is_old) && !matches!(body, BodyDecoder::UntilClose);
    let (mut parts, ()) = Response::new(()).into_parts();
    parts.status = status;
    parts.version = if is_old { Version::HTTP_10 } else { Version::HTTP_11 };
    parts.headers = headers;
    if let Some(reason) = reason {
        parts.extensions.insert(reason);
    }
    Ok(Some(ReplyHead { parts, body, keeps_alive }))
}

/// Returns the decoder of the body (RFC 9112, section 6.3).
fn decoder(
    status: StatusCode,
    method: &Method,
    is_old: bool,
    headers: &mut HeaderMap,
) -> Result<BodyDecoder, Http1Error> {
    let coding = headers.get_all(header::TRANSFER_ENCODING).iter().next_back();
    let is_chunked = coding.map(|coding| last_part(coding).eq_ignore_ascii_case(b"chunked"));
    if is_chunked.is_some() {
        // If there are both, the coding counts. A recipient that used the length would read another
        // body.
        headers.remove(header::CONTENT_LENGTH);
    }
    let is_bare = status.is_informational()
        || matches!(status, StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED)
        || *method == Method::HEAD;
    if is_bare {
        // It describes a body that is not sent, so a faulty one only misleads.
        plain_length(headers);
        return Ok(BodyDecoder::Over);
    }
    Ok(match is_chunked {
        Some(_) if is_old => return Err(Http1Error::Unclear("a transfer coding in HTTP/1.0")),
        Some(true) => BodyDecoder::chunked(),
        Some(false) => BodyDecoder::UntilClose,
        None => match plain_length_of(headers)? {
            Some(0) => BodyDecoder::Over,
            Some(length) => BodyDecoder::Length(length),
            None => BodyDecoder::UntilClose,
        },
    })
}

/// Leaves one field of the length that all fields name; none if they name several.
pub(crate) fn plain_length(headers: &mut HeaderMap) {
    if plain_length_of(headers).is_err() {
        headers.remove(header::CONTENT_LENGTH);
    }
}

/// Leaves one field of the length, in plain digits: clients may read several, or `7, 7`, in other ways.
/// Returns the length that all fields name; `None` if there is none.
fn plain_length_of(headers: &mut HeaderMap) -> Result<Option<u64>, Http1Error> {
    let mut found = None;
    let mut is_plain = true;
    for value in headers.get_all(header::CONTENT_LENGTH) {
        for part in value.as_bytes().split(|byte| *byte == b',') {
            let digits = part.trim_ascii();
            let is_number = !digits.is_empty() && digits.iter().all(u8::is_ascii_digit);
            let text = std::str::from_utf8(digits).ok().filter(|_| is_number);
            let length: Option<u64> = text.and_then(|digits| digits.parse().ok());
            if length.is_none() || found.is_some_and(|known| Some(known) != length) {
                return Err(Http1Error::Unclear("no single length"));
            }
            let is_padded = digits.len() < value.len() || matches!(digits, [b'0', _, ..]);
            is_plain &= found.is_none() && !is_padded;
            found = length;
        }
    }
    if let Some(length) = found.filter(|_| !is_plain) {
        headers.insert(header::CONTENT_LENGTH, length.into());
    }
    Ok(found)
}

fn keeps_alive(headers: &HeaderMap, is_old: bool) -> bool {
    let wish = if is_old { "keep-alive" } else { "close" };
    let wishes = headers.get_all(header::CONNECTION).iter();
    let is_told = wishes
        .flat_map(|value| value.as_bytes().split(|byte| *byte == b','))
        .any(|part| part.trim_ascii().eq_ignore_ascii_case(wish.as_bytes()));
    is_told == is_old
}

fn last_part(value: &HeaderValue) -> &[u8] {
    let mut parts = value.as_bytes().split(|byte| *byte == b',');
    parts.next_back().unwrap_or_default().trim_ascii()
}
