//! Check of V2 requests, compressed or not, for fields that steer the engine.

use std::io::{self, Write};

use flate2::write::{MultiGzDecoder, ZlibDecoder};

use super::V2Watch;
use crate::{ErrorKind, GatewayError};

/// Compression of a V2 request's body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum V2Coding {
    /// Content coding `gzip` of HTTP.
    Gzip,
    /// Content coding `deflate` of HTTP, in the zlib format.
    Deflate,
}

/// Check of a V2 request as it passes.
///
/// Compressed bytes are expanded piece by piece and forgotten. Memory is bounded by the decoder's
/// window and buffer, however large the expanded body is.
#[derive(Debug)]
pub enum V2Look {
    /// Body without compression.
    Plain(V2Watch),
    /// Body in gzip format.
    Gzip(Box<MultiGzDecoder<Expanded>>),
    /// Body in zlib format.
    Deflate(Box<ZlibDecoder<Expanded>>),
}

/// Receiver of a decoder's output.
#[derive(Debug)]
pub struct Expanded {
    watch: V2Watch,
    bytes_left: u64,
    fault: Option<GatewayError>,
}

impl V2Look {
    /// Creates a check with `watch`. A compressed body whose JSON expands to more than `bytes_max`
    /// is refused.
    #[must_use]
    pub fn new(watch: V2Watch, coding: Option<V2Coding>, bytes_max: u64) -> Self {
        let expanded = |watch| Expanded { watch, bytes_left: bytes_max, fault: None };
        match coding {
            None => Self::Plain(watch),
            Some(V2Coding::Gzip) => Self::Gzip(Box::new(MultiGzDecoder::new(expanded(watch)))),
            Some(V2Coding::Deflate) => Self::Deflate(Box::new(ZlibDecoder::new(expanded(watch)))),
        }
    }

    /// Takes the next piece, as received.
    ///
    /// # Errors
    /// Returns an error if a field is not allowed, or if the piece cannot be expanded.
    pub fn look(&mut self, piece: &[u8]) -> Result<(), GatewayError> {
        match self {
            Self::Plain(watch) => watch.look(piece),
            Self::Gzip(decoder) => expand(decoder.as_mut(), MultiGzDecoder::get_mut, piece),
            Self::Deflate(decoder) => expand(decoder.as_mut(), ZlibDecoder::get_mut, piece),
        }
    }
}

/// Expands a piece up to its last byte: bytes left in the decoder would be checked too late.
fn expand<D: Write>(
    decoder: &mut D,
    expanded: fn(&mut D) -> &mut Expanded,
    piece: &[u8],
) -> Result<(), GatewayError> {
    // The JSON is complete: the rest is tensors, which need not be expanded.
    if expanded(decoder).watch.is_over() {
        return Ok(());
    }
    let done = decoder.write_all(piece).and_then(|()| decoder.flush());
    done.map_err(|error| {
        // An error of the request counts more than the decoder's own message.
        expanded(decoder).fault.take().unwrap_or_else(|| {
            let message = format!("the body can't be expanded: {error}");
            GatewayError::new(ErrorKind::BadRequest, message)
        })
    })
}

impl Write for Expanded {
    fn write(&mut self, piece: &[u8]) -> io::Result<usize> {
        if self.watch.is_over() {
            return Ok(piece.len());
        }
        let left = self.bytes_left.checked_sub(piece.len() as u64);
        let looked = match left {
            Some(_) => self.watch.look(piece),
            None => {
                let message = "the JSON of the compressed body is too long";
                Err(GatewayError::new(ErrorKind::BodyTooLarge, message))
            }
        };
        self.bytes_left = left.unwrap_or_default();
        match looked {
            Ok(()) => Ok(piece.len()),
            Err(fault) => {
                self.fault = Some(fault);
                Err(io::Error::other("refused"))
            }
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use flate2::Compression;
    use flate2::write::{GzEncoder, ZlibEncoder};

    use super::*;
    use crate::EngineFields;

    fn packed(coding: V2Coding, bytes: &[u8]) -> Vec<u8> {
        match coding {
            V2Coding::Gzip => {
                let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
                encoder.write_all(bytes).unwrap();
                encoder.finish().unwrap()
            }
            V2Coding::Deflate => {
                let mut encoder = ZlibEncoder::new(Vec::new(), Compression::default());
                encoder.write_all(bytes).unwrap();
                encoder.finish().unwrap()
            }
        }
    }

    /// Returns the number and the error of the first piece that is refused.
    fn refused(
        coding: V2Coding,
        body: &[u8],
        (json_bytes, bytes_max, step): (u64, u64, usize),
    ) -> Option<(usize, ErrorKind)> {
        let watch = V2Watch::new(EngineFields::NONE, json_bytes);
        let mut look = V2Look::new(watch, Some(coding), bytes_max);
        let mut pieces = body.chunks(step).enumerate();
        pieces.find_map(|(at, piece)| look.look(piece).err().map(|error| (at, error.kind)))
    }

    const CODINGS: [V2Coding; 2] = [V2Coding::Gzip, V2Coding::Deflate];
    const STEERING: &[u8] = br#"{"inputs":[],"parameters":{"priority":1}}"#;

    #[test]
    fn fields_are_found_in_compressed_bodies_however_they_are_cut() {
        for coding in CODINGS {
            let body = packed(coding, STEERING);
            for step in [1, 2, 7, 4_096] {
                let found = refused(coding, &body, (u64::MAX, 1 << 20, step));
                assert_eq!(found.map(|found| found.1), Some(ErrorKind::BadRequest), "{step}");
            }
            let plain = packed(coding, br#"{"inputs":[],"parameters":{"temperature":1}}"#);
            assert_eq!(refused(coding, &plain, (u64::MAX, 1 << 20, 5)), None);
        }
    }

    #[test]
    fn the_second_member_of_a_gzip_body_is_read_too() {
        let mut body = packed(V2Coding::Gzip, br#"{"inputs":[],"#);
        body.extend(packed(V2Coding::Gzip, br#""priority":1}"#));
        assert!(refused(V2Coding::Gzip, &body, (u64::MAX, 1 << 20, 9)).is_some());
    }

    #[test]
    fn what_expands_without_end_or_not_at_all_is_refused() {
        for coding in CODINGS {
            let bomb = packed(coding, &vec![b' '; 50 << 20]);
            let found = refused(coding, &bomb, (u64::MAX, 1 << 20, 1_024));
            assert_eq!(found.map(|found| found.1), Some(ErrorKind::BodyTooLarge));
            let found = refused(coding, b"plain text, and no compressed one", (u64::MAX, 99, 3));
            assert_eq!(found.map(|found| found.1), Some(ErrorKind::BadRequest));
            // Behind the JSON are tensors, which are not expanded.
            assert_eq!(refused(coding, &bomb, (4, 1 << 20, 1_024)), None);
        }
    }
}
