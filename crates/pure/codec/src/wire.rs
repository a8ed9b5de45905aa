//! Messages, and their conversion to and from frames.

use bytes::Bytes;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::{DecodeError, EncodeError, FrameHeader, HEADER_BYTES, payload};

/// A message between nodes.
///
/// The order, number and types of its fields are its format. A change of any of them increases
/// `VERSION`, keeps the old type to read the version before in [`Self::decode_older`], and adds a
/// golden vector (see the `golden` module).
pub trait Wire: Serialize + DeserializeOwned {
    /// Kind of the message. Messages that could be taken for each other have different kinds.
    const KIND: u16;
    /// Version that is written.
    const VERSION: u16;
    /// Longest length of a payload in bytes.
    const BYTES_MAX: usize;

    /// Reads the payload of a version before [`Self::VERSION`], usually with [`decode_payload`] of
    /// the type that the message had then.
    ///
    /// # Errors
    /// Returns [`DecodeError::Version`] for a version that is not read any more: by default every
    /// older one.
    fn decode_older(version: u16, payload: &[u8]) -> Result<Self, DecodeError> {
        let _ = payload;
        Err(DecodeError::Version { kind: Self::KIND, found: version, newest: Self::VERSION })
    }
}

/// Encodes a message as one whole frame.
///
/// # Errors
/// Returns an error if the payload is longer than `T` may be, or holds something that the format
/// cannot carry.
pub fn encode<T: Wire>(message: &T) -> Result<Bytes, EncodeError> {
    let too_long = EncodeError::TooLong { bytes_max: T::BYTES_MAX };
    // The header comes last: it has the length and the checksum of the payload.
    let mut frame = vec![0; HEADER_BYTES];
    payload::append(message, &mut frame, T::BYTES_MAX)?;
    let (head, body) = frame.split_at_mut(HEADER_BYTES);
    let payload_bytes = u32::try_from(body.len()).map_err(|_| too_long)?;
    let header = FrameHeader::of(T::KIND, T::VERSION, payload_bytes, body);
    head.copy_from_slice(&header.to_bytes());
    Ok(frame.into())
}

/// Decodes the message of exactly one whole frame, with nothing after it.
///
/// # Errors
/// Returns a [`DecodeError`] that names the fault of the frame.
pub fn decode<T: Wire>(frame: &[u8]) -> Result<T, DecodeError> {
    let short = |needed| DecodeError::TooShort { bytes: frame.len(), needed };
    let (head, rest) =
        frame.split_first_chunk::<HEADER_BYTES>().ok_or_else(|| short(HEADER_BYTES))?;
    let header = FrameHeader::parse(head)?;
    let payload_bytes = header.admit::<T>()?;
    if rest.len() < payload_bytes {
        return Err(short(HEADER_BYTES + payload_bytes));
    }
    if rest.len() > payload_bytes {
        return Err(DecodeError::Trailing { bytes: rest.len() - payload_bytes });
    }
    header.open(rest)
}

impl FrameHeader {
    /// Decodes the message behind this header, for readers of streams: they read the payload after
    /// [`Self::admit`] returned its length.
    ///
    /// # Errors
    /// Returns the errors of [`decode`].
    pub fn open<T: Wire>(&self, payload: &[u8]) -> Result<T, DecodeError> {
        // Admitted again, since a reader of a stream may have asked for another type.
        let payload_bytes = self.admit::<T>()?;
        if payload.len() != payload_bytes {
            return Err(DecodeError::TooShort { bytes: payload.len(), needed: payload_bytes });
        }
        if self.checksum_with(payload) != self.checksum {
            return Err(DecodeError::Checksum);
        }
        // `admit` has refused newer versions.
        if self.version == T::VERSION {
            decode_payload(payload)
        } else {
            T::decode_older(self.version, payload)
        }
    }
}

/// Decodes a bare payload, which must be used up. For [`Wire::decode_older`].
///
/// # Errors
/// Returns [`DecodeError::Payload`] if the payload is no `T`.
pub fn decode_payload<T: DeserializeOwned>(payload: &[u8]) -> Result<T, DecodeError> {
    payload::read(payload)
}
