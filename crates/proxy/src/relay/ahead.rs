//! What was read of a reply before its client asked for it.
//!
//! It is copied into blocks. A piece is a slice of what the replica's connection read into, so a short
//! event would keep a whole read buffer alive: forty times its length, and nobody would have counted it.

use std::collections::VecDeque;
use std::sync::Arc;

use bytes::{Buf, Bytes};
use http_body::Frame;

use crate::relay::ahead_room::{AheadHold, AheadRoom};

/// Bytes of one block, the step in which room is taken. Small, since a client over HTTP/2 is judged by
/// whether it takes blocks: it has to take one in the time of a stall at least.
const BLOCK_BYTES: usize = 8 << 10;

/// The rest of a reply so far as it is here. Loses nothing: what there is no room for is kept as it
/// came, and [`Ahead::has_room`] is false until it found some.
#[derive(Debug)]
pub(super) struct Ahead {
    room: Arc<AheadRoom>,
    block_bytes: usize,
    blocks_max: usize,
    /// Oldest first; only the last may have bytes free.
    blocks: VecDeque<Block>,
    /// What no block had room for, behind all of them.
    rest: Bytes,
    /// They end the reply.
    trailers: Option<Frame<Bytes>>,
}

/// A block; keeps its room as long as its bytes are anywhere, also in the HTTP library.
#[derive(Debug)]
struct Block {
    bytes: Vec<u8>,
    _hold: AheadHold,
}

impl AsRef<[u8]> for Block {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Ahead {
    /// Room for `bytes_max` of one reply, in whole blocks, as far as all replies leave it any.
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

    /// Whether the client has all that was read.
    pub(super) fn is_empty(&self) -> bool {
        self.blocks.is_empty() && self.rest.is_empty() && self.trailers.is_none()
    }

    /// Whether more should be read. To be asked before each [`Ahead::push`].
    pub(super) fn has_room(&mut self) -> bool {
        self.settle();
        let is_open = self.blocks.back().is_some_and(|last| last.bytes.len() < self.block_bytes);
        self.rest.is_empty() && (is_open || self.may_grow())
    }

    /// Takes what was read.
    pub(super) fn push(&mut self, frame: Frame<Bytes>) {
        match frame.into_data() {
            Ok(piece) => {
                self.rest = match self.rest.is_empty() {
                    true => piece,
                    // Asked for without room; still nothing is lost.
                    false => [std::mem::take(&mut self.rest), piece].concat().into(),
                };
                self.settle();
            }
            Err(trailers) => self.trailers = Some(trailers),
        }
    }

    /// What comes next; `None` if the client has all that was read.
    pub(super) fn pop(&mut self) -> Option<Frame<Bytes>> {
        if let Some(block) = self.blocks.pop_front() {
            return Some(Frame::data(Bytes::from_owner(block)));
        }
        if !self.rest.is_empty() {
            return Some(Frame::data(std::mem::take(&mut self.rest)));
        }
        self.trailers.take()
    }

    /// Copies what waits into blocks, as far as there is room.
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
        // An empty rest of a slice would keep all that it is a slice of.
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
        self.blocks.push_back(Block { bytes, _hold: hold });
        true
    }
}

#[cfg(test)]
#[path = "ahead_test.rs"]
mod tests;
