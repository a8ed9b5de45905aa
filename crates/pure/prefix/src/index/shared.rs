//! State that the writer and the readers share.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use arc_swap::ArcSwap;

use super::holder_set_words::HolderSetWords;
use super::table::BlockTable;

/// Number of words of a bit set of all replica numbers.
const MASK_WORDS: usize = 1_024;

/// Table, sets, and the replicas whose blocks are hidden.
#[derive(Debug)]
pub(super) struct IndexShared {
    pub(super) table: ArcSwap<BlockTable>,
    pub(super) holder_sets: Arc<HolderSetWords>,
    /// Bit set of flushed replicas whose old blocks are not all removed yet.
    void: Box<[AtomicU64]>,
    void_count: AtomicU32,
    /// Number of words that hold a bit for each number given out.
    words: AtomicU32,
}

impl IndexShared {
    pub(super) fn new(table: BlockTable, holder_sets: Arc<HolderSetWords>) -> Self {
        Self {
            table: ArcSwap::from_pointee(table),
            holder_sets,
            void: (0..MASK_WORDS).map(|_| AtomicU64::new(0)).collect(),
            void_count: AtomicU32::new(0),
            words: AtomicU32::new(0),
        }
    }

    pub(super) fn set_universe(&self, numbers: u16) {
        self.words.store(u32::from(numbers).div_ceil(64), Ordering::Release);
    }

    pub(super) fn words(&self) -> usize {
        self.words.load(Ordering::Acquire) as usize
    }

    /// Hides all blocks of a replica. Look-ups that begin from now on do not see them.
    pub(super) fn hide(&self, holder: u16) {
        if self.flip(holder, true) {
            self.void_count.fetch_add(1, Ordering::SeqCst);
        }
    }

    /// Shows the blocks of a replica again.
    pub(super) fn show(&self, holder: u16) {
        if self.flip(holder, false) {
            self.void_count.fetch_sub(1, Ordering::SeqCst);
        }
    }

    pub(super) fn is_hidden(&self, holder: u16) -> bool {
        let word = &self.void[usize::from(holder / 64)];
        word.load(Ordering::SeqCst) >> (holder % 64) & 1 == 1
    }

    /// Copies the set of hidden replicas; an empty set if none is hidden.
    pub(super) fn copy_hidden(&self, hidden: &mut Vec<u64>) {
        hidden.clear();
        // Flushes are rare, so most look-ups copy nothing.
        if self.void_count.load(Ordering::SeqCst) > 0 {
            let words = &self.void[..self.words()];
            hidden.extend(words.iter().map(|word| word.load(Ordering::SeqCst)));
        }
    }

    /// Sets the bit of a replica. Returns true if that changed it.
    fn flip(&self, holder: u16, is_void: bool) -> bool {
        if self.is_hidden(holder) == is_void {
            return false;
        }
        let word = &self.void[usize::from(holder / 64)];
        word.fetch_xor(1 << (holder % 64), Ordering::SeqCst);
        true
    }
}
