//! Body of a reply while it is read: bounded alone, and together with all others.

use bytes::{Bytes, BytesMut};

use super::{BODY_BYTES_MAX, RequestError};
use crate::read_room::ReadHold;

/// Body that is read piece by piece. Pieces are copied: a short one would keep the whole buffer alive
/// that it came in.
#[derive(Debug, Default)]
pub(super) struct ReplyBody {
    bytes: BytesMut,
    hold: ReadHold,
}

impl ReplyBody {
    /// Appends a piece.
    ///
    /// # Errors
    /// Returns an error if the body is too long, or if other reads have the room.
    pub(super) fn push(&mut self, piece: &[u8]) -> Result<(), RequestError> {
        let length = self.bytes.len() + piece.len();
        if length > BODY_BYTES_MAX {
            return Err(RequestError::TooLarge);
        }
        // The buffer grows to twice its length at a time.
        if length > self.bytes.capacity() && !self.hold.resize(length.next_power_of_two()) {
            return Err(RequestError::Shortage);
        }
        self.bytes.extend_from_slice(piece);
        Ok(())
    }

    /// Returns the whole body. Its room is held for as long as the second value lives.
    pub(super) fn finish(self) -> (Bytes, ReadHold) {
        (self.bytes.freeze(), self.hold)
    }
}
