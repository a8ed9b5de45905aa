//! Shared code of the fuzz targets in crates with messages. For tests only, like `golden`.

use crate::{Wire, decode, decode_payload, encode};

/// Reads `input` as a payload of `T` behind a byte with its version, and checks what was read.
///
/// Mutations would hardly ever find a valid checksum, so the payload is decoded without one. A
/// message that can be read has to survive writing and reading: the second frame equals the first.
///
/// # Panics
/// Panics if a message that was read is written and read back as another one.
pub fn check_message<T: Wire>(input: &[u8]) -> Option<T> {
    // Must not panic, whatever the input is.
    drop(decode::<T>(input));
    let (version, payload) = input.split_first()?;
    if payload.len() > T::BYTES_MAX {
        return None;
    }
    let version = u16::from(*version);
    let message = if version >= T::VERSION {
        decode_payload::<T>(payload).ok()?
    } else {
        T::decode_older(version, payload).ok()?
    };
    // One of an older version may be longer in the present one than that allows.
    if let Ok(frame) = encode(&message) {
        let again = decode::<T>(&frame).ok().and_then(|again| encode(&again).ok());
        assert_eq!(again.as_ref(), Some(&frame), "a message changed when it was written and read");
    }
    Some(message)
}
