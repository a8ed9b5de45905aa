//! Messages, and the way between a message and its frame.

use bytes::Bytes;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::{DecodeError, EncodeError, FrameHeader, HEADER_BYTES, payload};

/// A message between nodes.
///
/// The order, number and types of its fields are its format: whoever changes one of them counts
/// `VERSION` up, keeps the old type to read the version before in [`Self::decode_older`], and adds
/// a golden vector (see the `golden` module).
pub trait Wire: Serialize + DeserializeOwned {
    /// Which message this is; unique in the program, never used again for another one.
    const KIND: u16;
    /// The version that is written.
    const VERSION: u16;
    /// How long a payload may be.
    const BYTES_MAX: usize;

    /// Reads the payload of a version before [`Self::VERSION`]; with [`decode_payload`] of the
    /// type it had then, as a rule.
    ///
    /// # Errors
    /// [`DecodeError::Version`] for what is not read any more, which is everything by default.
    fn decode_older(version: u16, payload: &[u8]) -> Result<Self, DecodeError> {
        let _ = payload;
        Err(DecodeError::Version { kind: Self::KIND, found: version, newest: Self::VERSION })
    }
}

/// One whole frame.
///
/// # Errors
/// If the payload is longer than `T` may be, or holds what the format cannot carry.
pub fn encode<T: Wire>(message: &T) -> Result<Bytes, EncodeError> {
    let too_long = EncodeError::TooLong { bytes_max: T::BYTES_MAX };
    let mut frame = vec![0; HEADER_BYTES];
    payload::append(message, &mut frame, T::BYTES_MAX)?;
    let (head, body) = frame.split_at_mut(HEADER_BYTES);
    let payload_bytes = u32::try_from(body.len()).map_err(|_| too_long)?;
    let header = FrameHeader::of(T::KIND, T::VERSION, payload_bytes, body);
    head.copy_from_slice(&header.to_bytes());
    Ok(frame.into())
}

/// The message of exactly one whole frame, with nothing after it.
///
/// # Errors
/// Each way to be no such frame has its own [`DecodeError`].
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
    /// The message whose header this is, for readers of streams, who have read the payload after
    /// [`Self::admit`] told them its length.
    ///
    /// # Errors
    /// As [`decode`].
    pub fn open<T: Wire>(&self, payload: &[u8]) -> Result<T, DecodeError> {
        let payload_bytes = self.admit::<T>()?;
        if payload.len() != payload_bytes {
            return Err(DecodeError::TooShort { bytes: payload.len(), needed: payload_bytes });
        }
        if self.checksum_with(payload) != self.checksum {
            return Err(DecodeError::Checksum);
        }
        if self.version == T::VERSION {
            decode_payload(payload)
        } else {
            T::decode_older(self.version, payload)
        }
    }
}

/// Reads a bare payload, which has to be used up. For [`Wire::decode_older`].
///
/// # Errors
/// [`DecodeError::Payload`] if it is no `T`.
pub fn decode_payload<T: DeserializeOwned>(payload: &[u8]) -> Result<T, DecodeError> {
    payload::read(payload)
}
