//! Payloads by bincode: the one file to change if the format ever does.

use std::cell::Cell;
use std::io::{self, Write};

use bincode::config::{Configuration, standard};
use bincode::serde::BorrowedSerdeDecoder;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::careful::Careful;
use crate::{DecodeError, EncodeError};

/// Little endian, integers of variable length. Bincode's own limit is left out: it counts the size
/// of numbers in memory, not on the wire, and is a constant that cannot follow the message's. The
/// frame's length, [`Careful`] and [`Bounded`] take its place.
const FORMAT: Configuration = standard();

/// Puts the payload of `message` behind what `frame` holds, as long as it has at most `bytes_max`.
pub(crate) fn append<T: Serialize>(
    message: &T,
    frame: &mut Vec<u8>,
    bytes_max: usize,
) -> Result<(), EncodeError> {
    let mut bounded = Bounded { frame, room: bytes_max };
    bincode::serde::encode_into_std_write(message, &mut bounded, FORMAT).map(|_| ()).map_err(
        |error| match error {
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
    // The decoder does not tell what is left; if another byte can be read, something is.
    if u8::deserialize(decoder.as_deserializer()).is_ok() {
        return Err(malformed("bytes are left over".to_owned()));
    }
    Ok(message)
}

/// Length of `part` inside a payload, for senders that have to fit a message into a datagram.
///
/// The length of a list is that of its elements and of its count (1 byte up to 250).
///
/// # Errors
/// If it holds what the format cannot carry.
pub fn payload_bytes<T: Serialize>(part: &T) -> Result<usize, EncodeError> {
    write_payload(part, &mut io::sink())
}

/// Writes `part` as it stands inside a payload, and says how long it is. For whoever hashes it:
/// equal values have equal bytes.
///
/// # Errors
/// If it holds what the format cannot carry, or `into` does not take it.
pub fn write_payload<T: Serialize>(part: &T, into: &mut impl Write) -> Result<usize, EncodeError> {
    bincode::serde::encode_into_std_write(part, into, FORMAT)
        .map_err(|error| EncodeError::Payload { why: error.to_string().into() })
}

/// Writes until there is no more room, so that a message that is too long is noticed early.
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
