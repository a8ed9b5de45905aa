//! Changes of the cache of prefixes, for those who follow it.

use crate::request::RequestId;

/// Change of the cache of prefixes. Blocks are named by a hash of their content and all before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CacheChange {
    /// A block can be reused from now on.
    Stored {
        /// Request that has computed the block.
        request: RequestId,
        /// The block.
        block: u64,
        /// Block before it; `None` for the first block of a prompt.
        parent: Option<u64>,
    },
    /// A block was evicted.
    Removed {
        /// The block.
        block: u64,
    },
}

/// Changes since they were last taken; none are kept unless a reader asks for them.
#[derive(Debug, Default)]
pub(crate) struct CacheChanges {
    pub(crate) is_kept: bool,
    kept: Vec<CacheChange>,
}

impl CacheChanges {
    pub(crate) fn note(&mut self, change: CacheChange) {
        if self.is_kept {
            self.kept.push(change);
        }
    }

    pub(crate) fn take(&mut self) -> Vec<CacheChange> {
        std::mem::take(&mut self.kept)
    }
}
