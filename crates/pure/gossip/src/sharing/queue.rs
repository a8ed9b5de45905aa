//! Entries that wait to be sent.

use std::collections::VecDeque;

use bytes::Bytes;
use spillway_codec::{encode, payload_bytes};
use spillway_types::NodeName;

use super::frame::{ENVELOPE_BYTES_MAX, Frame, PromptEntry};
use super::machine::To;

/// Entries for one receiver, bounded in bytes.
#[derive(Debug)]
pub(crate) struct Queue {
    entries: VecDeque<(To, PromptEntry, usize)>,
    bytes: usize,
    bytes_max: usize,
}

impl Queue {
    pub(crate) fn new(bytes_max: usize) -> Self {
        Self { entries: VecDeque::new(), bytes: 0, bytes_max }
    }

    /// Puts an entry at the end. Returns false if there is no room.
    pub(crate) fn push(&mut self, to: To, entry: PromptEntry) -> bool {
        // An entry that cannot be encoded counts as one that does not fit.
        let bytes = payload_bytes(&entry).unwrap_or(usize::MAX);
        if bytes > self.bytes_max - self.bytes.min(self.bytes_max) {
            return false;
        }
        self.bytes += bytes;
        self.entries.push_back((to, entry, bytes));
        true
    }

    /// Returns the next datagram of at most `datagram_bytes_max` bytes: entries in their order, as
    /// long as they have one receiver.
    pub(crate) fn pop(&mut self, epoch: u32, datagram_bytes_max: usize) -> Option<(To, Bytes)> {
        let (to, first, bytes) = self.entries.pop_front()?;
        self.bytes -= bytes;
        let mut room = datagram_bytes_max.saturating_sub(ENVELOPE_BYTES_MAX + bytes);
        let mut entries = vec![first];
        while let Some((_, entry, bytes)) =
            self.entries.pop_front_if(|(other, _, bytes)| *other == to && *bytes <= room)
        {
            self.bytes -= bytes;
            room -= bytes;
            entries.push(entry);
        }
        // An entry is never longer than a datagram: see `Sharing::parts`.
        let frame = encode(&Frame { epoch, entries }).ok()?;
        Some((to, frame))
    }

    /// Returns how many entries wait for that node alone.
    pub(crate) fn waiting_for(&self, node: &NodeName) -> usize {
        let is_for = |to: &To| matches!(to, To::Node(other) if other == node);
        self.entries.iter().filter(|(to, ..)| is_for(to)).count()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    pub(crate) fn clear(&mut self) {
        self.entries.clear();
        self.bytes = 0;
    }
}
