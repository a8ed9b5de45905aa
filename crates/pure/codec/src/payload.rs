//! Payloads in bincode: the one file to change if the format ever changes.

use std::cell::Cell;
use std::io::{self, Write};

use bincode::config::{Configuration, standard};
use bincode::serde::BorrowedSerdeDecoder;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::careful::Careful;
use crate::{DecodeError, EncodeError};

/// Little endian, integers of variable length. Bincode's own limit is not used: it counts the size
/// of numbers in memory, not on the wire, and it is a constant that cannot follow each message's
/// limit. The frame's length, [`Careful`] and [`Bounded`] do its work.
const FORMAT: Configuration = standard();

/// Appends the payload of `message` to `frame`, if the payload has at most `bytes_max` bytes.
pub(crate) fn append<T: Serialize>(
    message: &T,
    frame: &mut Vec<u8>,
    bytes_max: usize,
) -> Result<(), EncodeError> {
    let mut bounded = Bounded { frame, room: bytes_max };
    bincode::serde::encode_into_std_write(message, &mut bounded, FORMAT).map(|_| ()).map_err(
        |error| match error {
            // Only `Bounded` fails with this kind: a `Vec` takes everything.
            bincode::error::EncodeError::Io { inner, .. }
                if inner.kind() == io::ErrorKind::StorageFull =>
            {
                EncodeError::TooLong { bytes_max }
            }
            other => EncodeError::Payload { why: other.to_string().into() },
        },
    )
}

/// Reads a payload that holds one `T` and nothing else.
pub(crate) fn read<T: DeserializeOwned>(payload: &[u8]) -> Result<T, DecodeError> {
    let malformed = |why: String| DecodeError::Payload { why: why.into() };
    let mut decoder = BorrowedSerdeDecoder::from_slice(payload, FORMAT, ());
    let elements = Cell::new(payload.len());
    let message = T::deserialize(Careful::new(decoder.as_deserializer(), &elements))
        .map_err(|error| malformed(error.to_string()))?;
    // The decoder does not report remaining bytes. If another byte can be read, there are some.
    if u8::deserialize(decoder.as_deserializer()).is_ok() {
        return Err(malformed("bytes are left over".to_owned()));
    }
    Ok(message)
}

/// Returns the length of `part` inside a payload in bytes, for senders that must fit a message into
/// a datagram.
///
/// A list takes the lengths of its elements and that of its count (1 byte up to 250).
///
/// # Errors
/// Returns an error if `part` holds something that the format cannot carry.
pub fn payload_bytes<T: Serialize>(part: &T) -> Result<usize, EncodeError> {
    write_payload(part, &mut io::sink())
}

/// Writes `part` as it stands inside a payload, and returns its length in bytes. Equal values have
/// equal bytes, so the output can be hashed.
///
/// # Errors
/// Returns an error if `part` holds something that the format cannot carry, or if writing fails.
pub fn write_payload<T: Serialize>(part: &T, into: &mut impl Write) -> Result<usize, EncodeError> {
    bincode::serde::encode_into_std_write(part, into, FORMAT)
        .map_err(|error| EncodeError::Payload { why: error.to_string().into() })
}

/// Writer that fails when its room is used up, so that a message that is too long is noticed early.
struct Bounded<'a> {
    frame: &'a mut Vec<u8>,
    room: usize,
}

impl Write for Bounded<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.room = self.room.checked_sub(bytes.len()).ok_or(io::ErrorKind::StorageFull)?;
        self.frame.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
