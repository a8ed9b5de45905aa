//! What is known of caches: here block by block, elsewhere by what is hot.

use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use arc_swap::{ArcSwap, Guard};
use spillway_prefix::{HotView, IndexReader, Matches};
use spillway_types::{Holder, Inquiry, RegionName, Speed};
use tokio::sync::Notify;

/// Bytes of prompt in a block until the node says otherwise: the hasher's own default.
const BLOCK_BYTES_DEFAULT: u32 = 256;
/// Regions with hot blocks that a look-up tells apart. More than any cluster has; what lies beyond
/// counts as cold.
const HOT_REGIONS_MAX: usize = 64;

thread_local! {
    /// A look-up's memory, taken by one look-up and given back for the next: requests on one thread
    /// decide one after the other.
    static SCRATCH: Cell<Matches> = Cell::default();
}

/// What requests look caches up in, and the word that something was learned.
///
/// Whatever of it is missing, nothing counts as cached, and the load decides.
#[derive(Debug, Default)]
pub struct Knowledge {
    /// With the bytes of a block.
    index: OnceLock<(IndexReader, u32)>,
    hot: ArcSwap<HotView>,
    learned: Notify,
    counts: KnowledgeCounts,
}

/// How often caches were looked up.
#[derive(Debug, Default)]
pub struct KnowledgeCounts {
    lookups: AtomicU64,
    matched: AtomicU64,
    spills: AtomicU64,
    spills_changed: AtomicU64,
}

impl Knowledge {
    /// Looks caches of this region up here from now on; only the first call counts. `block_bytes` are
    /// those of the hasher.
    pub fn set_index(&self, index: IndexReader, block_bytes: u32) {
        drop(self.index.set((index, block_bytes.max(1))));
    }

    /// Looks caches of other regions up here from now on.
    pub fn replace_hot(&self, hot: Arc<HotView>) {
        self.hot.store(hot);
    }

    /// Bytes of prompt in a block.
    #[must_use]
    pub fn block_bytes(&self) -> u32 {
        self.index.get().map_or(BLOCK_BYTES_DEFAULT, |(_, block_bytes)| *block_bytes)
    }

    /// How often caches were looked up.
    #[must_use]
    pub fn counts(&self) -> &KnowledgeCounts {
        &self.counts
    }

    /// What the caches of this region hold of the request's prompt now. Waits for nobody.
    pub(crate) fn look_up(&self, inquiry: &Inquiry) -> Cached {
        let chain = inquiry.prefix.as_slice();
        let Some((index, _)) = self.index.get().filter(|_| !chain.is_empty()) else {
            return Cached::NOTHING;
        };
        let mut matches = SCRATCH.take();
        index.lookup(chain, &mut matches);
        self.counts.lookups.fetch_add(1, Ordering::Relaxed);
        if matches.longest() > 0 {
            self.counts.matched.fetch_add(1, Ordering::Relaxed);
        }
        Cached { matches: Some(matches) }
    }

    /// What other regions hold of the request's prompt, by its hot blocks.
    pub(crate) fn look_up_hot(&self, inquiry: &Inquiry) -> CachedElsewhere {
        let view = self.hot.load();
        let mut depths = [0; HOT_REGIONS_MAX];
        view.lookup(inquiry.prefix.as_slice(), &mut depths);
        CachedElsewhere { view, depths }
    }

    /// Milliseconds to read what is not cached of the request's prompt.
    pub(crate) fn prefill_ms(&self, inquiry: &Inquiry, cached_blocks: u32, speed: &Speed) -> f32 {
        let tokens = |bytes: f32| bytes / speed.bytes_per_token.max(f32::MIN_POSITIVE);
        let prompt = tokens(inquiry.prompt_bytes as f32);
        let cached = tokens(cached_blocks as f32 * self.block_bytes() as f32).min(prompt);
        // A token takes longer the more there are before it: the mean of those from `cached` on.
        let before = (prompt + cached) / 2.0 / 1_000.0;
        (prompt - cached) * (speed.prefill_ms + speed.prefill_ms_per_thousand * before)
    }

    pub(crate) fn spilled(&self, is_changed: bool) {
        self.counts.spills.fetch_add(1, Ordering::Relaxed);
        self.counts.spills_changed.fetch_add(u64::from(is_changed), Ordering::Relaxed);
    }

    /// Something was learned. One stored permit is enough: whoever takes it empties all queues.
    pub(crate) fn wake(&self) {
        self.learned.notify_one();
    }

    /// Returns once something was learned since the last call.
    pub(crate) async fn learned(&self) {
        self.learned.notified().await;
    }
}

impl KnowledgeCounts {
    /// Prompts that were looked up, once for each decision.
    #[must_use]
    pub fn lookups(&self) -> u64 {
        self.lookups.load(Ordering::Relaxed)
    }

    /// Of these, those of which some replica held a block.
    #[must_use]
    pub fn matched(&self) -> u64 {
        self.matched.load(Ordering::Relaxed)
    }

    /// Decisions between regions that knew of hot blocks.
    #[must_use]
    pub fn spills(&self) -> u64 {
        self.spills.load(Ordering::Relaxed)
    }

    /// Of these, those that would have gone another way without.
    #[must_use]
    pub fn spills_changed(&self) -> u64 {
        self.spills_changed.load(Ordering::Relaxed)
    }
}

/// What the replicas of this region hold of one prompt. Gives its memory back when dropped.
#[derive(Debug)]
pub(crate) struct Cached {
    matches: Option<Matches>,
}

impl Cached {
    /// Nothing was looked up.
    pub(crate) const NOTHING: Self = Self { matches: None };

    /// Leading blocks at a replica.
    pub(crate) fn blocks(&self, holder: Option<Holder>) -> u32 {
        self.matches.as_ref().zip(holder).map_or(0, |(matches, holder)| matches.blocks(holder))
    }

    /// Leading blocks at the replica that holds most.
    pub(crate) fn longest(&self) -> u32 {
        self.matches.as_ref().map_or(0, Matches::longest)
    }
}

impl Drop for Cached {
    fn drop(&mut self) {
        if let Some(matches) = self.matches.take() {
            SCRATCH.set(matches);
        }
    }
}

/// What other regions hold of one prompt.
#[derive(Debug)]
pub(crate) struct CachedElsewhere {
    view: Guard<Arc<HotView>>,
    depths: [u32; HOT_REGIONS_MAX],
}

impl CachedElsewhere {
    /// Leading blocks in a region.
    pub(crate) fn blocks(&self, region: &RegionName) -> u32 {
        // By name, so that a search finds it.
        let place = self.view.regions().binary_search(region);
        place.ok().and_then(|place| self.depths.get(place).copied()).unwrap_or(0)
    }

    /// Whether any region is known to hold anything.
    pub(crate) fn is_any(&self) -> bool {
        self.depths.iter().any(|depth| *depth > 0)
    }
}

#[cfg(test)]
mod knowledge_test;
