//! Bytes of a reply that were read before the client asked for them.
//!
//! The bytes are copied into blocks. A piece is a slice of the connection's read buffer, so a short
//! event would keep a whole buffer alive: forty times its length, which no count would show.

use std::collections::VecDeque;
use std::sync::Arc;

use bytes::{Buf, Bytes};
use http_body::Frame;
use spillway_transport::{AheadHold, AheadRoom};

/// Size of one block, in bytes. Small, since a client over HTTP/2 is judged by taking blocks: it
/// must take at least one within the stall time-out.
const BLOCK_BYTES: usize = 8 << 10;

/// Read-ahead buffer of one reply. Loses nothing: bytes without room are kept as they came, and
/// [`Ahead::has_room`] is false until there is room for them.
#[derive(Debug)]
pub(super) struct Ahead {
    room: Arc<AheadRoom>,
    block_bytes: usize,
    blocks_max: usize,
    /// Blocks, oldest first; only the last may have free bytes.
    blocks: VecDeque<AheadBlock>,
    /// Bytes that found no room in the blocks; they come after them.
    rest: Bytes,
    /// Trailers, which end the reply.
    trailers: Option<Frame<Bytes>>,
}

/// A block. It holds its room as long as its bytes are in use, even in the HTTP library.
#[derive(Debug)]
struct AheadBlock {
    bytes: Vec<u8>,
    _hold: AheadHold,
}

impl AsRef<[u8]> for AheadBlock {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Ahead {
    /// Returns a buffer for `bytes_max` bytes of one reply, in whole blocks, as far as the shared
    /// room allows.
    pub(super) fn new(room: Arc<AheadRoom>, bytes_max: usize) -> Self {
        let block_bytes = BLOCK_BYTES.min(bytes_max);
        Self {
            room,
            block_bytes,
            blocks_max: bytes_max.checked_div(block_bytes).unwrap_or(0),
            blocks: VecDeque::new(),
            rest: Bytes::new(),
            trailers: None,
        }
    }

    /// Returns true if the client has all that was read.
    pub(super) fn is_empty(&self) -> bool {
        self.blocks.is_empty() && self.rest.is_empty() && self.trailers.is_none()
    }

    /// Returns true if more may be read. Call it before each [`Ahead::push`].
    pub(super) fn has_room(&mut self) -> bool {
        self.settle();
        let is_open = self.blocks.back().is_some_and(|last| last.bytes.len() < self.block_bytes);
        self.rest.is_empty() && (is_open || self.may_grow())
    }

    /// Appends a frame.
    pub(super) fn push(&mut self, frame: Frame<Bytes>) {
        match frame.into_data() {
            Ok(piece) => {
                self.rest = match self.rest.is_empty() {
                    true => piece,
                    // Called without room: still nothing is lost.
                    false => [std::mem::take(&mut self.rest), piece].concat().into(),
                };
                self.settle();
            }
            Err(trailers) => self.trailers = Some(trailers),
        }
    }

    /// Removes the next frame; `None` if the client has all that was read.
    pub(super) fn pop(&mut self) -> Option<Frame<Bytes>> {
        if let Some(block) = self.blocks.pop_front() {
            return Some(Frame::data(Bytes::from_owner(block)));
        }
        if !self.rest.is_empty() {
            return Some(Frame::data(std::mem::take(&mut self.rest)));
        }
        self.trailers.take()
    }

    /// Copies waiting bytes into blocks, as far as there is room.
    fn settle(&mut self) {
        while !self.rest.is_empty() {
            let last = self.blocks.back_mut().filter(|last| last.bytes.len() < self.block_bytes);
            let Some(last) = last else {
                if !self.grow() {
                    return;
                }
                continue;
            };
            let count = self.rest.len().min(self.block_bytes - last.bytes.len());
            last.bytes.extend_from_slice(&self.rest[..count]);
            self.rest.advance(count);
        }
        // Even an empty slice would keep its whole buffer alive.
        self.rest = Bytes::new();
    }

    fn may_grow(&self) -> bool {
        self.blocks.len() < self.blocks_max && self.room.has(self.block_bytes as u64)
    }

    fn grow(&mut self) -> bool {
        if self.blocks.len() >= self.blocks_max {
            return false;
        }
        let Some(hold) = self.room.take(self.block_bytes as u64) else { return false };
        let bytes = Vec::with_capacity(self.block_bytes);
        self.blocks.push_back(AheadBlock { bytes, _hold: hold });
        true
    }
}

#[cfg(test)]
#[path = "ahead_test.rs"]
mod tests;
