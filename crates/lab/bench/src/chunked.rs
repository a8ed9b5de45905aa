//! Incremental reader of the chunked transfer coding; input may be split anywhere.

use crate::http1::HttpError;

/// Most hexadecimal digits of a chunk size: 12 digits are 256 TiB, and cannot overflow a `u64`.
const SIZE_DIGITS_MAX: u8 = 12;

/// Position of the reader inside the coding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ChunkState {
    // Size => (Extension | Data | Trailer)
    Size { value: u64, digits: u8 },
    // Extension => (Data | Trailer); everything up to the line feed is skipped.
    Extension { value: u64 },
    // Data => DataEnd
    Data { remaining: u64 },
    // DataEnd => Size
    DataEnd,
    // Trailer => (Trailer | Done); an empty line ends the body.
    Trailer { is_line_empty: bool },
    Done,
}

/// Reader that extracts the payload of a chunked body.
#[derive(Debug)]
pub(crate) struct ChunkReader {
    state: ChunkState,
}

impl ChunkReader {
    /// Returns a reader that expects the first chunk size.
    pub(crate) fn new() -> Self {
        Self { state: ChunkState::Size { value: 0, digits: 0 } }
    }

    /// Returns true if the last chunk and its trailer have been read.
    pub(crate) fn is_done(&self) -> bool {
        self.state == ChunkState::Done
    }

    /// Reads from `input` and hands each piece of payload to `payload`. Returns the number of bytes
    /// consumed: all of them, or those up to the end of the body.
    pub(crate) fn feed(
        &mut self,
        input: &[u8],
        payload: &mut impl FnMut(&[u8]),
    ) -> Result<usize, HttpError> {
        let mut at = 0;
        while at < input.len() && !self.is_done() {
            if let ChunkState::Data { remaining } = self.state {
                let length = usize::try_from(remaining).unwrap_or(usize::MAX).min(input.len() - at);
                payload(&input[at..at + length]);
                at += length;
                let left = remaining - length as u64;
                self.state = if left == 0 {
                    ChunkState::DataEnd
                } else {
                    ChunkState::Data { remaining: left }
                };
            } else {
                self.state = after_byte(self.state, input[at])?;
                at += 1;
            }
        }
        Ok(at)
    }
}

/// Returns the state after one byte of framing.
fn after_byte(state: ChunkState, byte: u8) -> Result<ChunkState, HttpError> {
    match (state, byte) {
        // A size needs at least one digit: an empty line must not read as the last chunk.
        (ChunkState::Size { digits: 0, .. }, b'\r' | b'\n' | b';') => Err(HttpError::Chunk),
        (ChunkState::Size { value, .. } | ChunkState::Extension { value }, b'\n') => {
            Ok(after_size(value))
        }
        (ChunkState::Size { value, .. }, b'\r' | b';' | b' ') => {
            Ok(ChunkState::Extension { value })
        }
        (ChunkState::Size { value, digits }, _) => {
            let digit = char::from(byte).to_digit(16).ok_or(HttpError::Chunk)?;
            if digits == SIZE_DIGITS_MAX {
                return Err(HttpError::Chunk);
            }
            Ok(ChunkState::Size { value: value * 16 + u64::from(digit), digits: digits + 1 })
        }
        (ChunkState::DataEnd, b'\r') => Ok(ChunkState::DataEnd),
        (ChunkState::DataEnd, b'\n') => Ok(ChunkState::Size { value: 0, digits: 0 }),
        // The payload is longer than its declared size.
        (ChunkState::DataEnd, _) => Err(HttpError::Chunk),
        (ChunkState::Trailer { is_line_empty: true }, b'\n') => Ok(ChunkState::Done),
        (ChunkState::Trailer { .. }, b'\n') => Ok(ChunkState::Trailer { is_line_empty: true }),
        // The carriage return belongs to the line end, so the line still counts as empty.
        (ChunkState::Trailer { is_line_empty: true }, b'\r') => Ok(state),
        (ChunkState::Trailer { .. }, _) => Ok(ChunkState::Trailer { is_line_empty: false }),
        (ChunkState::Extension { .. } | ChunkState::Data { .. } | ChunkState::Done, _) => Ok(state),
    }
}

fn after_size(value: u64) -> ChunkState {
    if value == 0 {
        ChunkState::Trailer { is_line_empty: true }
    } else {
        ChunkState::Data { remaining: value }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(pieces: &[&[u8]]) -> Result<(Vec<u8>, usize, bool), HttpError> {
        let mut reader = ChunkReader::new();
        let mut body = Vec::new();
        let mut consumed = 0;
        for piece in pieces {
            consumed += reader.feed(piece, &mut |bytes| body.extend_from_slice(bytes))?;
        }
        Ok((body, consumed, reader.is_done()))
    }

    #[test]
    fn every_split_gives_the_same_payload() {
        let wire =
            b"5\r\nhello\r\n1A;name=value\r\n abcdefghijklmnopqrstuvwxy\r\n0\r\nx-t: 1\r\n\r\n";
        let expected = b"hello abcdefghijklmnopqrstuvwxy".to_vec();
        for first in 0..=wire.len() {
            for second in first..=wire.len() {
                let (body, consumed, is_done) =
                    read(&[&wire[..first], &wire[first..second], &wire[second..]]).unwrap();
                assert_eq!((body, consumed, is_done), (expected.clone(), wire.len(), true));
            }
        }
    }

    #[test]
    fn bytes_after_the_body_are_left_alone() {
        let (body, consumed, is_done) = read(&[b"1\r\na\r\n0\r\n\r\nHTTP/1.1"]).unwrap();
        assert_eq!((body.as_slice(), consumed, is_done), (b"a".as_slice(), 11, true));
    }

    #[test]
    fn broken_sizes_are_refused() {
        for wire in [b"\r\n".as_slice(), b"g\r\n", b"1234567890123\r\n", b"1\r\nab\r\n"] {
            assert_eq!(read(&[wire]), Err(HttpError::Chunk), "{}", wire.escape_ascii());
        }
    }
}
