//! Knowledge about prefix caches: exact blocks in this region, hot blocks in other regions.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use arc_swap::{ArcSwap, Guard};
use spillway_prefix::{HotView, IndexReader, Matches};
use spillway_types::{Holder, Inquiry, RegionName, Speed};
use tokio::sync::Notify;

/// Bytes of prompt in a block until the node sets them: the default of the hasher.
const BLOCK_BYTES_DEFAULT: u32 = 256;
/// Most regions with hot blocks that a look-up distinguishes, more than any cluster has. Regions
/// beyond it count as cold.
const HOT_REGIONS_MAX: usize = 64;

thread_local! {
    /// Memory of a look-up, reused by the next one: requests on one thread decide one after the
    /// other.
    static SCRATCH: Cell<Matches> = Cell::default();
}

/// Prefix caches by which requests choose, and a signal that something new was learned.
///
/// If the index is missing, nothing counts as cached and the load alone decides.
#[derive(Debug, Default)]
pub struct Knowledge {
    /// Prefix index of this region and the bytes of prompt in a block.
    index: OnceLock<(IndexReader, u32)>,
    hot: ArcSwap<HotView>,
    /// Index of the prompts that were forwarded to other regions.
    forwards: OnceLock<IndexReader>,
    /// Number of each other region in that index.
    forward_holders: ArcSwap<BTreeMap<RegionName, Holder>>,
    learned: Notify,
    counts: KnowledgeCounts,
}

/// Counts of cache look-ups.
#[derive(Debug, Default)]
pub struct KnowledgeCounts {
    lookups: AtomicU64,
    matched: AtomicU64,
    spills: AtomicU64,
    spills_changed: AtomicU64,
}

impl Knowledge {
    /// Sets the prefix index of this region; only the first call has an effect. `block_bytes` is
    /// the hasher's.
    pub fn set_index(&self, index: IndexReader, block_bytes: u32) {
        drop(self.index.set((index, block_bytes.max(1))));
    }

    /// Replaces the hot blocks of other regions.
    pub fn replace_hot(&self, hot: Arc<HotView>) {
        self.hot.store(hot);
    }

    /// Sets the index of the prompts that were forwarded to other regions; only the first call has
    /// an effect.
    pub fn set_forwards(&self, index: IndexReader) {
        drop(self.forwards.set(index));
    }

    /// Replaces the numbers of the other regions in that index.
    pub fn replace_forward_holders(&self, holders: Arc<BTreeMap<RegionName, Holder>>) {
        self.forward_holders.store(holders);
    }

    /// Returns the bytes of prompt in a block.
    #[must_use]
    pub fn block_bytes(&self) -> u32 {
        self.index.get().map_or(BLOCK_BYTES_DEFAULT, |(_, block_bytes)| *block_bytes)
    }

    /// Returns the counts of cache look-ups.
    #[must_use]
    pub fn counts(&self) -> &KnowledgeCounts {
        &self.counts
    }

    /// Returns what the replicas of this region hold of the request's prompt now. Never blocks.
    pub fn look_up(&self, inquiry: &Inquiry) -> Cached {
        let chain = inquiry.prefix.as_slice();
        let Some((index, _)) = self.index.get().filter(|_| !chain.is_empty()) else {
            return Cached::NOTHING;
        };
        // Taken, not borrowed: while another result of this thread is alive, new memory is used.
        let mut matches = SCRATCH.take();
        index.lookup(chain, &mut matches);
        self.counts.lookups.fetch_add(1, Ordering::Relaxed);
        if matches.longest() > 0 {
            self.counts.matched.fetch_add(1, Ordering::Relaxed);
        }
        Cached { matches: Some(matches) }
    }

    /// Returns what other regions hold of the request's prompt, by their hot blocks.
    pub fn look_up_hot(&self, inquiry: &Inquiry) -> CachedElsewhere {
        let view = self.hot.load();
        let mut depths = [0; HOT_REGIONS_MAX];
        view.lookup(inquiry.prefix.as_slice(), &mut depths);
        CachedElsewhere { view, depths }
    }

    /// Returns how much of the request's prompt was forwarded to other regions before. Never blocks.
    pub fn look_up_forwards(&self, inquiry: &Inquiry) -> ForwardedPrompt {
        let chain = inquiry.prefix.as_slice();
        let holders = self.forward_holders.load();
        let Some(index) = self.forwards.get().filter(|_| !chain.is_empty()) else {
            return ForwardedPrompt { cached: Cached::NOTHING, holders };
        };
        let mut matches = SCRATCH.take();
        index.lookup(chain, &mut matches);
        ForwardedPrompt { cached: Cached { matches: Some(matches) }, holders }
    }

    /// Returns the predicted time to prefill the uncached part of the request's prompt, in
    /// milliseconds.
    pub fn prefill_ms(&self, inquiry: &Inquiry, cached_blocks: u32, speed: &Speed) -> f32 {
        let cached_bytes = cached_blocks as f32 * self.block_bytes() as f32;
        speed.reading_ms(inquiry.prompt_bytes as f32, cached_bytes)
    }

    /// Counts decisions between regions, and those of them that caches changed.
    pub fn spilled(&self, decisions: u32, changed: u32) {
        self.counts.spills.fetch_add(decisions.into(), Ordering::Relaxed);
        self.counts.spills_changed.fetch_add(changed.into(), Ordering::Relaxed);
    }

    /// Signals that something was learned. One stored permit is enough: the task that takes it
    /// checks all queues.
    pub fn wake(&self) {
        self.learned.notify_one();
    }

    /// Waits until something was learned since the last call.
    pub async fn learned(&self) {
        self.learned.notified().await;
    }
}

impl KnowledgeCounts {
    /// Returns the number of prompts looked up, once for each decision.
    #[must_use]
    pub fn lookups(&self) -> u64 {
        self.lookups.load(Ordering::Relaxed)
    }

    /// Returns the number of these prompts of which some replica held a block.
    #[must_use]
    pub fn matched(&self) -> u64 {
        self.matched.load(Ordering::Relaxed)
    }

    /// Returns the number of decisions between regions with hot blocks known.
    #[must_use]
    pub fn spills(&self) -> u64 {
        self.spills.load(Ordering::Relaxed)
    }

    /// Returns the number of these decisions that hot blocks changed.
    #[must_use]
    pub fn spills_changed(&self) -> u64 {
        self.spills_changed.load(Ordering::Relaxed)
    }
}

/// Blocks of one prompt that replicas of this region hold. Returns its memory for reuse when
/// dropped.
#[derive(Debug)]
pub struct Cached {
    matches: Option<Matches>,
}

impl Cached {
    /// Result without a look-up: nothing is cached.
    pub const NOTHING: Self = Self { matches: None };

    /// Returns the number of leading blocks that a replica holds.
    pub fn blocks(&self, holder: Option<Holder>) -> u32 {
        self.matches.as_ref().zip(holder).map_or(0, |(matches, holder)| matches.blocks(holder))
    }

    /// Iterates over the replicas that hold so many leading blocks. The range lies above 0.
    pub fn holders(&self, blocks: RangeInclusive<u32>) -> impl Iterator<Item = Holder> {
        self.matches.iter().flat_map(move |matches| matches.holders(blocks.clone()))
    }

    /// Returns the number of leading blocks at the replica that holds most.
    pub fn longest(&self) -> u32 {
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

/// Blocks of one prompt that were forwarded to other regions before, and are probably cached there.
#[derive(Debug)]
pub struct ForwardedPrompt {
    cached: Cached,
    holders: Guard<Arc<BTreeMap<RegionName, Holder>>>,
}

impl ForwardedPrompt {
    /// Returns the number of leading blocks that were forwarded to a region.
    pub fn blocks(&self, region: &RegionName) -> u32 {
        self.cached.blocks(self.holders.get(region).copied())
    }

    /// Returns true if any block was forwarded to any region.
    pub fn is_any(&self) -> bool {
        self.cached.longest() > 0
    }
}

/// Blocks of one prompt that other regions hold.
#[derive(Debug)]
pub struct CachedElsewhere {
    view: Guard<Arc<HotView>>,
    depths: [u32; HOT_REGIONS_MAX],
}

impl CachedElsewhere {
    /// Returns the number of leading blocks that a region holds.
    pub fn blocks(&self, region: &RegionName) -> u32 {
        // The regions are sorted by name.
        let place = self.view.regions().binary_search(region);
        place.ok().and_then(|place| self.depths.get(place).copied()).unwrap_or(0)
    }

    /// Returns true if any region is known to hold a block.
    pub fn is_any(&self) -> bool {
        self.depths.iter().any(|depth| *depth > 0)
    }
}

#[cfg(test)]
mod knowledge_test;
