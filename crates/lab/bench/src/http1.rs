//! Incremental reader of HTTP/1.1 messages, for the client and the backend.
//!
//! The reader understands framing and nothing else: the start line, `content-length`,
//! `transfer-encoding: chunked` and `connection: close`. So both ends stay far cheaper than the
//! proxies between them.
//! `httparse` was not taken: it reads heads alone, so bodies would still be framed here.

use crate::chunked::ChunkReader;

/// Largest accepted head in bytes; real ones here have a few hundred.
const HEAD_BYTES_MAX: usize = 64 * 1024;

/// Error of a message that cannot be read. The connection must be closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum HttpError {
    /// The start line or a framing header is malformed.
    #[error("malformed head")]
    Head,
    /// The head has more than 64 KiB.
    #[error("head too long")]
    HeadTooLong,
    /// The chunked coding is broken.
    #[error("malformed chunk")]
    Chunk,
}

/// Side of the connection, which determines the form of the start line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HttpRole {
    /// Reads requests.
    Server,
    /// Reads responses.
    Client,
}

/// Content of the start line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Start {
    /// A request with the method POST.
    Post,
    /// A request with any other method.
    OtherMethod,
    /// A response with this status.
    Status(u16),
}

/// Parts of a head that framing needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct HttpHead {
    /// Start line.
    pub(crate) start: Start,
    /// True if the peer closes the connection after this message.
    pub(crate) closes: bool,
    framing: Framing,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Framing {
    Sized(u64),
    Chunked,
    UntilClose,
}

#[derive(Debug)]
enum ReadState {
    // Head => (Sized | Chunked | UntilClose | Done), or Head again after a 1xx response
    Head,
    // Sized => Done
    Sized { remaining: u64 },
    // Chunked => Done
    Chunked(ChunkReader),
    // Only the end of the connection ends the body.
    UntilClose,
    Done,
}

/// Reader of one message after another, from pieces of any size.
#[derive(Debug)]
pub(crate) struct MessageReader {
    role: HttpRole,
    state: ReadState,
    head: Option<HttpHead>,
    /// Start of a head that arrives in pieces; empty in the usual case.
    partial: Vec<u8>,
}

impl MessageReader {
    /// Returns a reader that expects the start of a message.
    pub(crate) fn new(role: HttpRole) -> Self {
        Self { role, state: ReadState::Head, head: None, partial: Vec::new() }
    }

    /// Returns the head of the current message; `None` until it is complete.
    pub(crate) fn head(&self) -> Option<&HttpHead> {
        self.head.as_ref()
    }

    /// Returns true if the current message is complete.
    pub(crate) fn is_done(&self) -> bool {
        matches!(self.state, ReadState::Done)
    }

    /// Returns true if the end of the connection ends the current message properly.
    pub(crate) fn may_end_by_close(&self) -> bool {
        matches!(self.state, ReadState::UntilClose)
    }

    /// Makes the reader expect the next message. Call this when [`Self::is_done`] is true.
    pub(crate) fn reset(&mut self) {
        self.state = ReadState::Head;
        self.head = None;
        self.partial.clear();
    }

    /// Reads from `input` and hands each piece of the body to `payload`. Returns the number of
    /// bytes consumed: all of them, or those up to the end of the message.
    pub(crate) fn feed(
        &mut self,
        input: &[u8],
        payload: &mut impl FnMut(&[u8]),
    ) -> Result<usize, HttpError> {
        let mut at = 0;
        while at < input.len() && !self.is_done() {
            let rest = &input[at..];
            at += match &mut self.state {
                ReadState::Head => self.feed_head(rest)?,
                ReadState::Sized { remaining } => {
                    let length = usize::try_from(*remaining).unwrap_or(usize::MAX).min(rest.len());
                    payload(&rest[..length]);
                    *remaining -= length as u64;
                    if *remaining == 0 {
                        self.state = ReadState::Done;
                    }
                    length
                }
                ReadState::Chunked(reader) => {
                    let length = reader.feed(rest, payload)?;
                    if reader.is_done() {
                        self.state = ReadState::Done;
                    }
                    length
                }
                ReadState::UntilClose => {
                    payload(rest);
                    rest.len()
                }
                ReadState::Done => 0,
            };
        }
        Ok(at)
    }

    fn feed_head(&mut self, input: &[u8]) -> Result<usize, HttpError> {
        // The usual case: the whole head is in one piece, and nothing is copied.
        if self.partial.is_empty() {
            if let Some(end) = head_end(input, 0) {
                self.begin_body(parse_head(&input[..end], self.role)?);
                return Ok(end);
            }
            self.partial.extend_from_slice(input);
            return Ok(input.len());
        }
        let known = self.partial.len();
        // A peer that never sends the blank line must not fill the memory.
        if known + input.len() > HEAD_BYTES_MAX {
            return Err(HttpError::HeadTooLong);
        }
        self.partial.extend_from_slice(input);
        // The blank line may be split: up to three of its bytes came before.
        let Some(end) = head_end(&self.partial, known.saturating_sub(3)) else {
            return Ok(input.len());
        };
        let head = parse_head(&self.partial[..end], self.role)?;
        self.partial.clear();
        self.begin_body(head);
        Ok(end - known)
    }

    fn begin_body(&mut self, head: HttpHead) {
        // An interim response: the final one follows.
        if matches!(head.start, Start::Status(100..=199)) {
            return;
        }
        self.state = match head.framing {
            // Done at once: no byte of a body will come to end it.
            Framing::Sized(0) => ReadState::Done,
            Framing::Sized(remaining) => ReadState::Sized { remaining },
            Framing::Chunked => ReadState::Chunked(ChunkReader::new()),
            Framing::UntilClose => ReadState::UntilClose,
        };
        self.head = Some(head);
    }
}

/// Returns the index after the blank line; searches from `from`.
fn head_end(bytes: &[u8], from: usize) -> Option<usize> {
    memchr::memmem::find(&bytes[from..], b"\r\n\r\n").map(|at| from + at + 4)
}

fn parse_head(head: &[u8], role: HttpRole) -> Result<HttpHead, HttpError> {
    let mut lines = head.split(|byte| *byte == b'\n');
    let start = parse_start(lines.next().unwrap_or_default(), role)?;
    let mut length = None;
    let mut is_chunked = false;
    let mut closes = false;
    for line in lines {
        // The blank line at the end of the head has no colon.
        let Some(colon) = memchr::memchr(b':', line) else { continue };
        let (name, value) = (&line[..colon], line[colon + 1..].trim_ascii());
        // The length of a name rules out nearly every header before any letter is compared.
        match name.len() {
            14 if name.eq_ignore_ascii_case(b"content-length") => {
                length = Some(parse_number(value)?);
            }
            17 if name.eq_ignore_ascii_case(b"transfer-encoding") => {
                is_chunked = value.eq_ignore_ascii_case(b"chunked");
            }
            10 if name.eq_ignore_ascii_case(b"connection") => {
                closes = value.eq_ignore_ascii_case(b"close");
            }
            _ => {}
        }
    }
    let framing = match (start, length) {
        // These have no body, whatever their headers declare.
        (Start::Status(204 | 304), _) => Framing::Sized(0),
        // Chunked wins over a length (RFC 9112, section 6.3).
        _ if is_chunked => Framing::Chunked,
        (_, Some(length)) => Framing::Sized(length),
        // Only a response may end with its connection; a request without a length has no body.
        (Start::Status(_), None) => Framing::UntilClose,
        (Start::Post | Start::OtherMethod, None) => Framing::Sized(0),
    };
    Ok(HttpHead { start, closes, framing })
}

fn parse_start(line: &[u8], role: HttpRole) -> Result<Start, HttpError> {
    match role {
        HttpRole::Server if line.starts_with(b"POST ") => Ok(Start::Post),
        HttpRole::Server if memchr::memchr(b' ', line).is_some() => Ok(Start::OtherMethod),
        HttpRole::Server => Err(HttpError::Head),
        HttpRole::Client => {
            let digits = line.strip_prefix(b"HTTP/1.1 ").ok_or(HttpError::Head)?;
            let status = parse_number(digits.get(..3).ok_or(HttpError::Head)?)?;
            Ok(Start::Status(u16::try_from(status).map_err(|_| HttpError::Head)?))
        }
    }
}

fn parse_number(digits: &[u8]) -> Result<u64, HttpError> {
    std::str::from_utf8(digits)
        .ok()
        .filter(|text| text.bytes().all(|byte| byte.is_ascii_digit()))
        .and_then(|text| text.parse().ok())
        .ok_or(HttpError::Head)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Reads `pieces` and returns each message's start and body.
    fn read(role: HttpRole, pieces: &[&[u8]]) -> Result<Vec<(Start, Vec<u8>)>, HttpError> {
        let mut reader = MessageReader::new(role);
        let mut messages = Vec::new();
        let mut body = Vec::new();
        for piece in pieces {
            let mut at = 0;
            while at < piece.len() {
                at += reader.feed(&piece[at..], &mut |bytes| body.extend_from_slice(bytes))?;
                if reader.is_done() {
                    messages.push((reader.head().unwrap().start, std::mem::take(&mut body)));
                    reader.reset();
                }
            }
        }
        Ok(messages)
    }

    #[test]
    fn responses_read_the_same_however_they_are_split() {
        let wire = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nx: y\r\n\r\nhello\
            HTTP/1.1 100 Continue\r\n\r\n\
            HTTP/1.1 503 Busy\r\ntransfer-encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n\
            HTTP/1.1 204 No Content\r\n\r\n";
        let expected = vec![
            (Start::Status(200), b"hello".to_vec()),
            (Start::Status(503), b"abc".to_vec()),
            (Start::Status(204), Vec::new()),
        ];
        for first in 0..=wire.len() {
            for second in first..=wire.len() {
                let pieces = [&wire[..first], &wire[first..second], &wire[second..]];
                assert_eq!(read(HttpRole::Client, &pieces).unwrap(), expected, "{first} {second}");
            }
        }
        let bytes: Vec<&[u8]> = wire.chunks(1).collect();
        assert_eq!(read(HttpRole::Client, &bytes).unwrap(), expected);
    }

    #[test]
    fn requests_are_told_apart_by_method_and_drained() {
        let wire = b"GET /v1/models HTTP/1.1\r\nhost: a\r\n\r\n\
            POST / HTTP/1.1\r\nCONTENT-LENGTH: 3\r\n\r\nabcPOST / HTTP/1.1\r\n\r\n";
        let expected = vec![
            (Start::OtherMethod, Vec::new()),
            (Start::Post, b"abc".to_vec()),
            (Start::Post, Vec::new()),
        ];
        assert_eq!(read(HttpRole::Server, &[wire]).unwrap(), expected);
    }

    #[test]
    fn a_response_without_length_ends_with_the_connection() {
        let mut reader = MessageReader::new(HttpRole::Client);
        let wire = b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\nabc";
        assert_eq!(reader.feed(wire, &mut |_| {}), Ok(wire.len()));
        assert!(reader.may_end_by_close() && !reader.is_done());
        assert!(reader.head().unwrap().closes);
    }

    #[test]
    fn malformed_heads_are_refused() {
        let cases = [
            (HttpRole::Client, b"HTTP/1.0 200 OK\r\n\r\n".as_slice()),
            (HttpRole::Client, b"HTTP/1.1 2x0 OK\r\n\r\n"),
            (HttpRole::Client, b"HTTP/1.1 200 OK\r\ncontent-length: -1\r\n\r\n"),
            (HttpRole::Server, b"nonsense\r\n\r\n"),
        ];
        for (role, wire) in cases {
            assert_eq!(read(role, &[wire]), Err(HttpError::Head), "{}", wire.escape_ascii());
        }
    }
}
