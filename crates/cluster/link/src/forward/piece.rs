//! Wire format of a body: pieces with a kind and a length, and an explicit end.
//!
//! The end of the stream alone is not enough, because a program that drops a stream by mistake ends
//! it properly.

use bytes::{Buf, Bytes, BytesMut};
use http::HeaderMap;
use spillway_codec::{DecodeError, EncodeError, HEADER_BYTES};
use thiserror::Error;

use super::headers::REPLY_FIELDS_BYTES_MAX;
use super::word::Trailers;

/// Length of a piece's head: kind, and length in little endian.
pub(super) const PIECE_HEAD_BYTES: usize = 5;
/// Longest data piece that is sent or accepted. No buffer of this size is ever allocated, because
/// data is passed on as it comes.
pub(super) const DATA_BYTES_MAX: u32 = 1 << 20;

const TRAILERS_BYTES_MAX: u32 = (REPLY_FIELDS_BYTES_MAX + HEADER_BYTES) as u32;
const DATA: u8 = 1;
const TRAILERS: u8 = 2;
const END: u8 = 3;

/// Piece of a body.
#[derive(Debug, PartialEq)]
pub(super) enum Piece {
    /// Some bytes. The borders between pieces have no meaning.
    Data(Bytes),
    /// Trailers, after the last bytes.
    Trailers(HeaderMap),
    /// End of the body.
    End,
}

/// Breach of the rules of pieces.
#[derive(Debug, PartialEq, Eq, Error)]
pub enum PieceError {
    /// The kind of the piece is unknown.
    #[error("a piece has the unknown kind {0}")]
    Kind(u8),
    /// The length is not allowed for the kind of the piece.
    #[error("a piece of kind {kind} has {bytes} bytes")]
    Length {
        /// Kind of the piece.
        kind: u8,
        /// Length that the piece claims, in bytes.
        bytes: u32,
    },
    /// A piece comes after the trailers or the end.
    #[error("a piece of kind {0} comes after the trailers or the end")]
    Late(u8),
    /// The trailers can't be decoded.
    #[error(transparent)]
    Trailers(#[from] DecodeError),
    /// The trailers are not valid headers.
    #[error("trailers: {0}")]
    TrailerHeaders(&'static str),
    /// The stream ended before the body did.
    #[error("the body is cut off")]
    CutOff,
}

/// Returns the head of a data piece of `bytes` bytes.
pub(super) fn data_head(bytes: u32) -> Bytes {
    head(DATA, bytes)
}

/// Returns the piece that ends a body.
pub(super) fn end() -> Bytes {
    head(END, 0)
}

/// Returns the two parts of a trailers piece, or an error if they are larger than a peer accepts.
pub(super) fn trailers(headers: &HeaderMap) -> Result<[Bytes; 2], EncodeError> {
    let trailers = Trailers::of(headers).map_err(|why| EncodeError::Payload { why: why.into() })?;
    let frame = spillway_codec::encode(&trailers)?;
    // The codec has checked the length, which is far below 4 GiB.
    Ok([head(TRAILERS, frame.len() as u32), frame])
}

fn head(kind: u8, bytes: u32) -> Bytes {
    let [a, b, c, d] = bytes.to_le_bytes();
    Bytes::copy_from_slice(&[kind, a, b, c, d])
}

/// Parser that splits a stream's bytes into pieces, wherever the bytes are cut.
#[derive(Debug, Default)]
pub(super) struct PieceReader {
    state: PieceState,
    trailers_seen: bool,
}

#[derive(Debug)]
enum PieceState {
    /// So many bytes of a piece's head have come. // => (Data | Trailers | Ended)
    Head([u8; PIECE_HEAD_BYTES], usize),
    /// So many bytes of data are still to come. // => Head
    Data(u32),
    /// So many bytes are still to come, after those in the buffer. // => Head
    Trailers(BytesMut, usize),
    /// The last piece was read. // => Ended
    Ended,
}

impl Default for PieceState {
    fn default() -> Self {
        Self::Head([0; PIECE_HEAD_BYTES], 0)
    }
}

impl PieceReader {
    /// Takes the next piece from `input`. Takes all of `input` and returns `None` if that is not
    /// enough for a piece.
    ///
    /// # Errors
    /// Returns an error if the input breaks the rules; the reader must not be used afterwards.
    pub(super) fn next(&mut self, input: &mut Bytes) -> Result<Option<Piece>, PieceError> {
        while !input.is_empty() {
            match &mut self.state {
                PieceState::Head(head, filled) => {
                    let count = (PIECE_HEAD_BYTES - *filled).min(input.len());
                    input.copy_to_slice(&mut head[*filled..*filled + count]);
                    *filled += count;
                    if *filled == PIECE_HEAD_BYTES {
                        let [kind, a, b, c, d] = *head;
                        let piece = self.begin(kind, u32::from_le_bytes([a, b, c, d]))?;
                        if piece.is_some() {
                            return Ok(piece);
                        }
                    }
                }
                PieceState::Data(left) => {
                    let count = input.len().min(*left as usize);
                    *left -= count as u32;
                    if *left == 0 {
                        self.state = PieceState::default();
                    }
                    return Ok(Some(Piece::Data(input.split_to(count))));
                }
                PieceState::Trailers(buffer, left) => {
                    let count = input.len().min(*left);
                    buffer.extend_from_slice(&input.split_to(count));
                    *left -= count;
                    if *left == 0 {
                        let trailers: Trailers = spillway_codec::decode(buffer)?;
                        self.state = PieceState::default();
                        let headers = trailers.into_map().map_err(PieceError::TrailerHeaders)?;
                        return Ok(Some(Piece::Trailers(headers)));
                    }
                }
                PieceState::Ended => return Err(PieceError::Late(input[0])),
            }
        }
        Ok(None)
    }

    /// Takes the end from `input` if it comes next. Returns true if so.
    pub(super) fn take_end(&mut self, input: &mut Bytes) -> bool {
        let at_head = matches!(self.state, PieceState::Head(_, 0));
        let is_next = at_head && input.starts_with(&[END, 0, 0, 0, 0]);
        is_next && matches!(self.next(input), Ok(Some(Piece::End)))
    }

    /// Begins a piece. Returns the end at once, because it is a whole piece by itself.
    fn begin(&mut self, kind: u8, bytes: u32) -> Result<Option<Piece>, PieceError> {
        if self.trailers_seen && kind != END {
            return Err(PieceError::Late(kind));
        }
        match (kind, bytes) {
            // No empty data: a peer could send it forever and never reach the announced length.
            (DATA, 1..=DATA_BYTES_MAX) => self.state = PieceState::Data(bytes),
            (TRAILERS, 1..=TRAILERS_BYTES_MAX) => {
                self.trailers_seen = true;
                self.state = PieceState::Trailers(BytesMut::new(), bytes as usize);
            }
            (END, 0) => {
                self.state = PieceState::Ended;
                return Ok(Some(Piece::End));
            }
            (DATA | TRAILERS | END, _) => return Err(PieceError::Length { kind, bytes }),
            _ => return Err(PieceError::Kind(kind)),
        }
        Ok(None)
    }
}
