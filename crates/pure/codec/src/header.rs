//! The fixed first bytes of every frame.

use crate::{DecodeError, Wire};

/// Length of a frame's header.
pub const HEADER_BYTES: usize = 14;

/// "SW" when read as text.
const MAGIC: u16 = 0x5753;

/// Offset of the checksum, which covers all bytes before it and the payload.
const CHECKSUM_AT: usize = 10;

/// Header before a payload. All numbers are little endian.
///
/// | bytes | what |
/// |---|---|
/// | 0–1 | magic |
/// | 2–3 | kind |
/// | 4–5 | version |
/// | 6–9 | length of the payload |
/// | 10–13 | CRC32C of bytes 0–9 and the payload |
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrameHeader {
    /// Kind of the message.
    pub kind: u16,
    /// Version of the message.
    pub version: u16,
    /// Length of the payload.
    pub payload_bytes: u32,
    /// CRC32C over the header's other fields and the payload.
    pub checksum: u32,
}

impl FrameHeader {
    /// Reads a header. The kind may be any, and the length any claim: call [`Self::admit`] before
    /// reading on.
    ///
    /// # Errors
    /// Returns [`DecodeError::Magic`] if the bytes do not begin like a frame.
    pub fn parse(bytes: &[u8; HEADER_BYTES]) -> Result<Self, DecodeError> {
        let [m0, m1, k0, k1, v0, v1, l0, l1, l2, l3, c0, c1, c2, c3] = *bytes;
        let found = u16::from_le_bytes([m0, m1]);
        if found != MAGIC {
            return Err(DecodeError::Magic { found });
        }
        Ok(Self {
            kind: u16::from_le_bytes([k0, k1]),
            version: u16::from_le_bytes([v0, v1]),
            payload_bytes: u32::from_le_bytes([l0, l1, l2, l3]),
            checksum: u32::from_le_bytes([c0, c1, c2, c3]),
        })
    }

    /// Returns the length of the payload, if the header announces a `T` that this program can read.
    ///
    /// # Errors
    /// Returns an error for another kind, a version newer than this program's, or a payload that is
    /// too long.
    pub fn admit<T: Wire>(&self) -> Result<usize, DecodeError> {
        if self.kind != T::KIND {
            return Err(DecodeError::Kind { found: self.kind, expected: T::KIND });
        }
        if self.version > T::VERSION {
            return Err(DecodeError::Version {
                kind: self.kind,
                found: self.version,
                newest: T::VERSION,
            });
        }
        // A length that does not fit into `usize` is too long in any case.
        let bytes = usize::try_from(self.payload_bytes).unwrap_or(usize::MAX);
        if bytes > T::BYTES_MAX {
            return Err(DecodeError::TooLong { bytes, bytes_max: T::BYTES_MAX });
        }
        Ok(bytes)
    }

    /// Returns the header of `payload`, checksum included.
    pub(crate) fn of(kind: u16, version: u16, payload_bytes: u32, payload: &[u8]) -> Self {
        let mut header = Self { kind, version, payload_bytes, checksum: 0 };
        header.checksum = header.checksum_with(payload);
        header
    }

    /// Returns the checksum that the header must have for `payload`.
    pub(crate) fn checksum_with(&self, payload: &[u8]) -> u32 {
        crc32c::crc32c_append(crc32c::crc32c(&self.to_bytes()[..CHECKSUM_AT]), payload)
    }

    pub(crate) fn to_bytes(self) -> [u8; HEADER_BYTES] {
        let mut bytes = [0; HEADER_BYTES];
        bytes[0..2].copy_from_slice(&MAGIC.to_le_bytes());
        bytes[2..4].copy_from_slice(&self.kind.to_le_bytes());
        bytes[4..6].copy_from_slice(&self.version.to_le_bytes());
        bytes[6..CHECKSUM_AT].copy_from_slice(&self.payload_bytes.to_le_bytes());
        bytes[CHECKSUM_AT..].copy_from_slice(&self.checksum.to_le_bytes());
        bytes
    }
}
