//! Datagrams that nodes of a region send each other about prompts.

use serde::{Deserialize, Serialize};
use spillway_codec::{HEADER_BYTES, Wire};

use crate::NameId;

/// Longest datagram without its entries, bytes: every number at its longest.
pub(crate) const ENVELOPE_BYTES_MAX: usize = HEADER_BYTES + 10;

/// Kind number of these datagrams.
pub(crate) const KIND: u16 = 0x0103;

/// A datagram of prompts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Frame {
    /// Key that the blocks are hashed with: blocks of another key mean nothing here.
    pub(crate) epoch: u32,
    pub(crate) entries: Vec<PromptEntry>,
}

impl Wire for Frame {
    const KIND: u16 = KIND;
    const VERSION: u16 = 1;
    // Longer than any path carries.
    const BYTES_MAX: usize = 2_048;
}

/// A hash as it travels: eight bytes, since all of its bits count.
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

/// Statement about one prompt.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum PromptEntry {
    /// The prompt was sent to that replica.
    Sent(SharedChain),
    /// The replica had only so many leading blocks of the prompt in its cache.
    Cached { told: SharedChain, blocks: u32 },
    /// The sender lacks blocks that an entry of the receiver follows on. The prompt ends with this
    /// block.
    Lacking { replica: NameId, last: Block },
    /// The beginning of a prompt that is too long for one datagram; the statement comes with its
    /// end.
    Part(SharedChain),
    /// The replica has written a whole reply. The first `prompt_blocks` are those of its prompt.
    Written { told: SharedChain, prompt_blocks: u32 },
}

/// A prompt, as an addition to one that was shared before.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct SharedChain {
    pub(crate) replica: NameId,
    /// Block that the prompt continues from; `None` if from none.
    pub(crate) after: Option<Block>,
    pub(crate) blocks: Vec<Block>,
}

impl SharedChain {
    /// Returns the prompt's last block; `None` for a prompt without any.
    pub(crate) fn last(&self) -> Option<Block> {
        self.blocks.last().copied().or(self.after)
    }
}
