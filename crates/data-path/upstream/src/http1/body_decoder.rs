//! Takes the framing off the body of a reply.

use std::ops::Range;

use bytes::{Buf, Bytes, BytesMut};
use http::{HeaderMap, HeaderName, HeaderValue};
use httparse::Status;

use crate::http1::HEAD_BYTES_MAX;
use crate::http1::error::Http1Error;
use crate::http1::reply_head::{FIELDS_MAX, FIELDS_USUAL};

/// Most bytes of the line before a chunk.
const LINE_BYTES_MAX: usize = 4 << 10;
/// Most bytes that all extensions of a body's chunks may have, as many as hyper takes.
const EXTENSION_BYTES_MAX: usize = 16 << 10;
/// Digits of the longest size, and the end of its line.
const SIZE_BYTES: usize = 18;

/// State of a body that is read.
#[derive(Debug)]
pub(super) enum BodyDecoder {
    /// So many bytes are to come, at least one.
    Length(u64),
    /// Chunks are to come.
    Chunked {
        /// Part of the framing that is expected next.
        next: Chunk,
        /// Bytes of extensions so far.
        extension_bytes: usize,
    },
    /// All until the connection ends.
    UntilClose,
    /// Trailers are to be handed over.
    Trailers(HeaderMap),
    /// The body has ended.
    Over,
}

/// Part of a chunked body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Chunk {
    /// Line with the size.
    Size,
    /// So many bytes of data.
    Data(u64),
    /// End of the line behind data.
    End,
    /// Trailers and the empty line, of which so many bytes have no end yet.
    Trailers(usize),
}

/// Result of one read of a body.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum BodyRead {
    /// Bytes of the body.
    Data(Bytes),
    /// Trailers.
    Trailers(HeaderMap),
    /// The end.
    End,
    /// Nothing yet: more has to be read from the connection.
    More,
}

impl BodyDecoder {
    pub(super) fn chunked() -> Self {
        Self::Chunked { next: Chunk::Size, extension_bytes: 0 }
    }

    /// Takes what `buffer` has of the body. Data of chunks that came together is one piece.
    ///
    /// # Errors
    ///
    /// Returns an error if the framing is malformed.
    pub(super) fn take(&mut self, buffer: &mut BytesMut) -> Result<BodyRead, Http1Error> {
        match self {
            Self::Over => Ok(BodyRead::End),
            Self::Trailers(trailers) => {
                let trailers = std::mem::take(trailers);
                *self = Self::Over;
                Ok(BodyRead::Trailers(trailers))
            }
            Self::Chunked { .. } => self.take_chunks(buffer),
            _ if buffer.is_empty() => Ok(BodyRead::More),
            Self::UntilClose => Ok(BodyRead::Data(buffer.split().freeze())),
            Self::Length(left) => {
                let taken = buffer.len().min(usize::try_from(*left).unwrap_or(usize::MAX));
                *left -= taken as u64;
                if *left == 0 {
                    *self = Self::Over;
                }
                Ok(BodyRead::Data(buffer.split_to(taken).freeze()))
            }
        }
    }

    /// Ends the body with its connection.
    ///
    /// # Errors
    ///
    /// Returns an error if more was to come.
    pub(super) fn end(&mut self) -> Result<(), Http1Error> {
        match std::mem::replace(self, Self::Over) {
            Self::UntilClose | Self::Over | Self::Trailers(_) => Ok(()),
            Self::Length(_) | Self::Chunked { .. } => Err(Http1Error::Closed),
        }
    }

    /// Returns true if nothing is to be handed over any more.
    pub(super) fn is_over(&self) -> bool {
        matches!(self, Self::Over)
    }

    /// Returns the number of bytes still to come, if the framing contains it.
    pub(super) fn bytes_left(&self) -> Option<u64> {
        match self {
            Self::Length(left) => Some(*left),
            Self::Over => Some(0),
            Self::Chunked { .. } | Self::UntilClose | Self::Trailers(_) => None,
        }
    }

    fn take_chunks(&mut self, buffer: &mut BytesMut) -> Result<BodyRead, Http1Error> {
        let mut run = ChunkRun::new(buffer);
        let mut after = None;
        if let Self::Chunked { next, extension_bytes } = self {
            while let Some(step) = run.step(*next, extension_bytes)? {
                match step {
                    ChunkStep::To(chunk) => *next = chunk,
                    ChunkStep::Over(trailers) => {
                        after = Some(trailers);
                        break;
                    }
                }
            }
        }
        let ChunkRun { at, data, .. } = run;
        buffer.advance(data.start);
        let piece = buffer.split_to(data.len()).freeze();
        buffer.advance(at - data.end);
        if let Some(trailers) = after {
            *self = if trailers.is_empty() { Self::Over } else { Self::Trailers(trailers) };
        }
        if !piece.is_empty() {
            return Ok(BodyRead::Data(piece));
        }
        if matches!(self, Self::Chunked { .. }) { Ok(BodyRead::More) } else { self.take(buffer) }
    }
}

/// A run through the chunks in a buffer. Data is moved together at the position where the first of it
/// lies.
struct ChunkRun<'b> {
    bytes: &'b mut [u8],
    /// Position behind what was read.
    at: usize,
    /// Position of the data so far.
    data: Range<usize>,
}

/// Step from one part of the body to the next.
enum ChunkStep {
    To(Chunk),
    /// The body ends with these trailers.
    Over(HeaderMap),
}

impl<'b> ChunkRun<'b> {
    fn new(bytes: &'b mut [u8]) -> Self {
        Self { bytes, at: 0, data: 0..0 }
    }

    /// Reads `chunk`; `None` if more bytes are needed.
    fn step(
        &mut self,
        chunk: Chunk,
        extension_bytes: &mut usize,
    ) -> Result<Option<ChunkStep>, Http1Error> {
        let rest = &self.bytes[self.at..];
        let next = match chunk {
            Chunk::Size => {
                // The library takes an empty line for a size of zero.
                let is_size = rest.first().is_none_or(u8::is_ascii_hexdigit);
                let line = httparse::parse_chunk_size(rest).ok().filter(|_| is_size);
                let line = line.ok_or(Http1Error::Chunk("an invalid size"))?;
                let Status::Complete((length, size)) = line else {
                    return enough(rest.len() <= LINE_BYTES_MAX, "too long a line");
                };
                if rest[..length - 1].contains(&b'\n') {
                    // Others would take it for the end of the line.
                    return Err(Http1Error::Chunk("a bare line feed in its extensions"));
                }
                *extension_bytes += length.saturating_sub(SIZE_BYTES);
                if *extension_bytes > EXTENSION_BYTES_MAX {
                    return Err(Http1Error::Chunk("too long extensions"));
                }
                self.at += length;
                if size == 0 { Chunk::Trailers(0) } else { Chunk::Data(size) }
            }
            Chunk::Data(_) if rest.is_empty() => return Ok(None),
            Chunk::Data(size) => self.take_data(size),
            Chunk::End => match rest {
                [b'\r', b'\n', ..] => {
                    self.at += 2;
                    Chunk::Size
                }
                [] | [b'\r'] => return Ok(None),
                _ => return Err(Http1Error::Chunk("no end")),
            },
            Chunk::Trailers(seen) if !may_end(rest, seen) => {
                if seen == rest.len() {
                    return enough(rest.len() <= HEAD_BYTES_MAX, "too long trailers");
                }
                Chunk::Trailers(rest.len())
            }
            Chunk::Trailers(_) => {
                let Some((length, trailers)) = trailers_in(rest)? else { return Ok(None) };
                if length > HEAD_BYTES_MAX {
                    return Err(Http1Error::Chunk("too long trailers"));
                }
                self.at += length;
                return Ok(Some(ChunkStep::Over(trailers)));
            }
        };
        Ok(Some(ChunkStep::To(next)))
    }

    /// Takes data of a chunk of which `size` bytes are to come.
    fn take_data(&mut self, size: u64) -> Chunk {
        let there = self.bytes.len() - self.at;
        let taken = there.min(usize::try_from(size).unwrap_or(usize::MAX));
        if self.data.is_empty() {
            self.data = self.at..self.at;
        }
        self.bytes.copy_within(self.at..self.at + taken, self.data.end);
        self.data.end += taken;
        self.at += taken;
        match size - taken as u64 {
            0 => Chunk::End,
            left => Chunk::Data(left),
        }
    }
}

/// Waits for more if what is there is not too much.
fn enough(is_short: bool, fault: &'static str) -> Result<Option<ChunkStep>, Http1Error> {
    if is_short { Ok(None) } else { Err(Http1Error::Chunk(fault)) }
}

/// Returns true if trailers may end behind the first `seen` bytes. Otherwise trailers that come byte by
/// byte would be parsed again with each of them.
fn may_end(bytes: &[u8], seen: usize) -> bool {
    let recent = &bytes[seen.saturating_sub(2)..];
    bytes.starts_with(b"\r\n")
        || recent.windows(3).any(|ends| ends == b"\n\r\n")
        || recent.windows(2).any(|ends| ends == b"\n\n")
}

/// Reads trailers and the empty line behind them; `None` if they are not complete.
fn trailers_in(bytes: &[u8]) -> Result<Option<(usize, HeaderMap)>, Http1Error> {
    if bytes.starts_with(b"\r\n") {
        return Ok(Some((2, HeaderMap::new())));
    }
    let mut usual = [httparse::EMPTY_HEADER; FIELDS_USUAL];
    let mut all;
    let mut parsed = httparse::parse_headers(bytes, &mut usual);
    if parsed == Err(httparse::Error::TooManyHeaders) {
        all = vec![httparse::EMPTY_HEADER; FIELDS_MAX];
        parsed = httparse::parse_headers(bytes, &mut all);
    }
    let Status::Complete((length, fields)) = parsed.map_err(Http1Error::Fields)? else {
        return Ok(None);
    };
    // The library takes bare line feeds, too, as it must for heads of old servers.
    let mut lines = bytes[..length].split_inclusive(|byte| *byte == b'\n');
    if !lines.all(|line| line.ends_with(b"\r\n")) {
        return Err(Http1Error::Chunk("a bare line feed in its trailers"));
    }
    let mut trailers = HeaderMap::with_capacity(fields.len());
    for field in fields {
        let name = HeaderName::from_bytes(field.name.as_bytes());
        let (Ok(name), Ok(value)) = (name, HeaderValue::from_bytes(field.value)) else {
            return Err(Http1Error::Chunk("an invalid trailer"));
        };
        let appended = trailers.try_append(name, value);
        appended.map_err(|_| Http1Error::Chunk("too many trailers"))?;
    }
    Ok(Some((length, trailers)))
}
