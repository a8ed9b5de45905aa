//! Frames of gRPC messages, and headers of gRPC statuses.

use bytes::{Buf, Bytes, BytesMut};
use http::{HeaderMap, HeaderValue, Response, StatusCode, header};
use prost::Message;

use crate::api::ApiError;
use crate::body::ReplyBody;

/// Content type of gRPC requests and replies.
pub(crate) const CONTENT_TYPE: &str = "application/grpc";
/// Bytes in front of each message: a flag for compression, and the length.
const HEAD_BYTES: usize = 5;

/// Returns a message in its frame.
pub(super) fn frame(message: &impl Message) -> Bytes {
    let length = message.encoded_len();
    let mut framed = Vec::with_capacity(HEAD_BYTES + length);
    framed.push(0);
    framed.extend(u32::try_from(length).unwrap_or(u32::MAX).to_be_bytes());
    // A vector grows as needed, so encoding cannot fail.
    message.encode(&mut framed).unwrap_or_default();
    framed.into()
}

/// Returns a reply with one message.
pub(super) fn reply(message: &impl Message) -> Response<ReplyBody> {
    head(ReplyBody::whole(frame(message)).with_trailers(ok_trailers()))
}

/// Returns a reply with this body.
pub(super) fn head(body: ReplyBody) -> Response<ReplyBody> {
    let mut response = Response::new(body);
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(CONTENT_TYPE));
    response
}

/// Returns the trailers of a successful call.
pub(super) fn ok_trailers() -> HeaderMap {
    HeaderMap::from_iter([(header::HeaderName::from_static("grpc-status"), HeaderValue::from(0))])
}

/// Returns the trailers of a failed call.
pub(crate) fn error_trailers(status: StatusCode, message: &str) -> HeaderMap {
    let mut trailers = HeaderMap::new();
    trailers.insert("grpc-status", HeaderValue::from(code_of(status)));
    // gRPC percent-encodes messages: everything but printable ASCII, and the percent sign itself.
    let printable = message.bytes().map(|byte| match byte {
        b' '..=b'$' | b'&'..=b'~' => char::from(byte).to_string(),
        byte => format!("%{byte:02X}"),
    });
    if let Ok(message) = HeaderValue::try_from(printable.collect::<String>()) {
        trailers.insert("grpc-message", message);
    }
    // Asks the client to send the message again without compression.
    if status == StatusCode::UNSUPPORTED_MEDIA_TYPE {
        trailers.insert("grpc-accept-encoding", HeaderValue::from_static("identity"));
    }
    trailers
}

/// Returns the gRPC code that is closest to an HTTP status.
fn code_of(status: StatusCode) -> u16 {
    match status.as_u16() {
        400 => 3,
        401 => 16,
        403 => 7,
        404 => 5,
        405 | 415 | 501 => 12,
        413 | 429 => 8,
        500 => 13,
        503 => 14,
        504 => 4,
        _ => 2,
    }
}

/// Returns the message of a body that has exactly one.
///
/// # Errors
/// Returns an error if the body has no complete message or more than one.
pub(super) fn message_in(body: Bytes) -> Result<Bytes, ApiError> {
    let mut buffer = Buffer { bytes: BytesMut::from(body), bytes_max: usize::MAX };
    match buffer.pop()? {
        Some(message) if buffer.is_empty() => Ok(message),
        Some(_) => Err(ApiError::invalid("there is more than one message", None)),
        None => Err(ApiError::invalid("there is no whole message", None)),
    }
}

/// Buffer of a stream's bytes until they form messages.
pub(super) struct Buffer {
    bytes: BytesMut,
    bytes_max: usize,
}

impl Buffer {
    pub(super) fn new(bytes_max: usize) -> Self {
        Self { bytes: BytesMut::new(), bytes_max }
    }

    pub(super) fn push(&mut self, piece: &[u8]) {
        self.bytes.extend_from_slice(piece);
    }

    pub(super) fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// Returns the next message, or `None` if it is not complete yet.
    ///
    /// # Errors
    /// Returns an error if the message is compressed or too large.
    pub(super) fn pop(&mut self) -> Result<Option<Bytes>, ApiError> {
        let Some([flag, length @ ..]) = self.bytes.first_chunk::<HEAD_BYTES>() else {
            return Ok(None);
        };
        if *flag != 0 {
            return Err(ApiError::unsupported_encoding());
        }
        let length = usize::try_from(u32::from_be_bytes(*length)).unwrap_or(usize::MAX);
        if length > self.bytes_max {
            return Err(ApiError::too_large(self.bytes_max));
        }
        if self.bytes.len() - HEAD_BYTES < length {
            return Ok(None);
        }
        self.bytes.advance(HEAD_BYTES);
        Ok(Some(self.bytes.split_to(length).freeze()))
    }
}
