//! What nodes of a region send each other of prompts.

use serde::{Deserialize, Serialize};
use spillway_codec::{HEADER_BYTES, Wire};

use crate::NameId;

/// All that stands in a datagram beside its entries, every number at its longest.
pub(crate) const ENVELOPE_BYTES_MAX: usize = HEADER_BYTES + 10;

/// The number of these datagrams.
pub(crate) const KIND: u16 = 0x0103;

/// One datagram.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Frame {
    /// Which key the blocks are hashed with: those of another one mean nothing here.
    pub(crate) epoch: u32,
    pub(crate) entries: Vec<Entry>,
}

impl Wire for Frame {
    const KIND: u16 = KIND;
    const VERSION: u16 = 1;
    // Longer than any path carries.
    const BYTES_MAX: usize = 2_048;
}

/// A hash as it travels: all of its bits count, so that no shorter form is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) struct Block([u8; 8]);

impl Block {
    pub(crate) fn of(hash: u64) -> Self {
        Self(hash.to_le_bytes())
    }

    pub(crate) fn hash(self) -> u64 {
        u64::from_le_bytes(self.0)
    }
}

/// What is said of one prompt.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Entry {
    /// It was sent to that replica.
    Sent(Told),
    /// That replica had only so many of its leading blocks in its cache.
    Cached { told: Told, blocks: u32 },
    /// The sender lacks what an entry of the receiver follows on. It is of the prompt that ends with
    /// this block.
    Lacking { replica: NameId, last: Block },
    /// It begins a prompt that is too long for one datagram; what is said of it comes with its end.
    Part(Told),
}

/// A prompt, as what it adds to one that was told before.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Told {
    pub(crate) replica: NameId,
    /// The block that it goes on from; `None` if from none.
    pub(crate) after: Option<Block>,
    pub(crate) blocks: Vec<Block>,
}

impl Told {
    /// The prompt's last block; `None` for one without any.
    pub(crate) fn last(&self) -> Option<Block> {
        self.blocks.last().copied().or(self.after)
    }
}
