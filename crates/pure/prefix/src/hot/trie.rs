//! Global prefix trie: hot blocks of all regions, as part of the replicated state.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::Arc;

use highway::{HighwayHash, HighwayHasher, Key};
use serde::{Deserialize, Serialize};
use spillway_types::RegionName;

use super::block::HotDelta;
use super::region_blocks::{HotChange, HotEntry, RegionBlocks};

/// Hot blocks of all regions. The content depends only on the deltas applied, not on a clock.
///
/// Clones are cheap: they share the blocks of regions that do not change.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "BTreeMap<RegionName, Arc<RegionBlocks>>")]
#[serde(into = "BTreeMap<RegionName, Arc<RegionBlocks>>")]
pub struct HotTrie {
    regions: BTreeMap<RegionName, Arc<RegionBlocks>>,
}

/// Size of a [`HotTrie`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HotStats {
    /// Number of regions with at least one hot block.
    pub regions: u64,
    /// Blocks of all regions; a block that is hot in two regions counts twice.
    pub blocks: u64,
    /// Bytes of the blocks.
    pub bytes: u64,
}

/// Hot block with the regions that hold it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct HottestBlock {
    /// Chained keyed hash of the block.
    pub hash: u64,
    /// Hash of the block before; 0 for the first block of a prompt.
    pub parent: u64,
    /// Position in the prompt: 1 is the first block.
    pub depth: u16,
    /// Heat in the region where the block is hottest, as in
    /// [`HotBlock::heat`](crate::HotBlock::heat).
    pub heat: u8,
    /// Regions that hold the block, by name.
    pub regions: Vec<RegionName>,
}

impl HotTrie {
    /// Largest number of blocks of all regions together: 3 MiB.
    pub const BLOCKS_MAX: usize = 131_072;
    /// Largest number of regions with blocks; deltas of further regions are ignored.
    pub const REGIONS_MAX: usize = 256;

    /// Applies a delta that `region` announced at `stamp_ms`. The delta may hold anything that a
    /// peer could send.
    ///
    /// Blocks leave before others enter. A block without its parent is left out, and so are records
    /// beyond [`HotDelta::RECORDS_MAX`]. Beyond the limits, the coldest blocks without children go:
    /// those of this region above its own limit, those of the largest region above the limit of
    /// all.
    pub fn apply(&mut self, region: &RegionName, delta: &HotDelta, stamp_ms: u64) -> HotChange {
        let is_known = self.regions.contains_key(region);
        if delta.is_empty() || (!is_known && self.regions.len() >= Self::REGIONS_MAX) {
            return HotChange::default();
        }
        let before = self.regions.remove(region).unwrap_or_default();
        let (after, change) = before.changed_by(delta, stamp_ms);
        if !after.entries().is_empty() {
            self.regions.insert(region.clone(), Arc::new(after));
        }
        self.shrink();
        change
    }

    /// Removes a region that is gone for good.
    pub fn remove_region(&mut self, region: &RegionName) {
        self.regions.remove(region);
    }

    /// Removes everything, because the key of the block hashes has changed.
    pub fn clear(&mut self) {
        self.regions.clear();
    }

    /// Returns a digest: equal for equal tries, and different for different ones with near
    /// certainty. Cheap, since each region keeps its digest ready.
    #[must_use]
    pub fn digest(&self) -> u128 {
        let mut hasher = HighwayHasher::new(Key([0; 4]));
        for (name, blocks) in &self.regions {
            hasher.append(&(name.as_str().len() as u64).to_le_bytes());
            hasher.append(name.as_str().as_bytes());
            hasher.append(&blocks.digest().to_le_bytes());
        }
        let [low, high] = hasher.finalize128();
        u128::from(high) << 64 | u128::from(low)
    }

    /// Returns the size of the trie.
    #[must_use]
    pub fn stats(&self) -> HotStats {
        let blocks = self.blocks_total();
        HotStats {
            regions: self.regions.len() as u64,
            blocks: blocks as u64,
            bytes: (blocks * size_of::<HotEntry>()) as u64,
        }
    }

    /// Returns true if no region has a hot block.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.regions.is_empty()
    }

    /// Returns the regions with hot blocks, sorted by name.
    pub fn regions(&self) -> impl Iterator<Item = (&RegionName, &RegionBlocks)> {
        self.regions.iter().map(|(name, blocks)| (name, &**blocks))
    }

    /// Returns the hot blocks of one region; `None` if it has none.
    #[must_use]
    pub fn region(&self, name: &RegionName) -> Option<&RegionBlocks> {
        self.regions.get(name).map(|blocks| &**blocks)
    }

    /// Returns the `count` hottest blocks by heat, then depth, for operators.
    #[must_use]
    pub fn hottest(&self, count: usize) -> Vec<HottestBlock> {
        let mut blocks: BTreeMap<u64, HottestBlock> = BTreeMap::new();
        for (name, region) in &self.regions {
            for HotEntry { hash, parent, depth, heat, .. } in region.entries() {
                let block = blocks.entry(*hash).or_insert_with(|| HottestBlock {
                    hash: *hash,
                    parent: *parent,
                    depth: *depth,
                    heat: *heat,
                    regions: Vec::new(),
                });
                block.heat = block.heat.max(*heat);
                block.regions.push(name.clone());
            }
        }
        let mut blocks: Vec<HottestBlock> = blocks.into_values().collect();
        blocks.sort_by_key(|block| Reverse((block.heat, block.depth, Reverse(block.hash))));
        blocks.truncate(count);
        blocks
    }

    fn blocks_total(&self) -> usize {
        self.regions.values().map(|blocks| blocks.entries().len()).sum()
    }

    /// Brings all regions together within the limit: the largest regions lose blocks until they are
    /// equally large.
    fn shrink(&mut self) {
        if self.blocks_total() <= Self::BLOCKS_MAX {
            return;
        }
        let within = |level: usize| -> usize {
            self.regions.values().map(|blocks| blocks.entries().len().min(level)).sum()
        };
        // Finds the highest level under which all regions fit. The first regions above that level
        // get one block more, as far as there is room.
        let (mut level, mut above) = (0, RegionBlocks::BLOCKS_MAX + 1);
        while above - level > 1 {
            let middle = usize::midpoint(level, above);
            let half = if within(middle) <= Self::BLOCKS_MAX { &mut level } else { &mut above };
            *half = middle;
        }
        let mut spare = Self::BLOCKS_MAX - within(level);
        for blocks in self.regions.values_mut().filter(|it| it.entries().len() > level) {
            let keep = level + usize::from(spare > 0);
            spare = spare.saturating_sub(1);
            if blocks.entries().len() > keep {
                *blocks = Arc::new(RegionBlocks::clone(blocks).with_at_most(keep));
            }
        }
        self.regions.retain(|_, blocks| !blocks.entries().is_empty());
    }
}

impl From<BTreeMap<RegionName, Arc<RegionBlocks>>> for HotTrie {
    /// Keeps as much of `regions` as the limits allow.
    fn from(regions: BTreeMap<RegionName, Arc<RegionBlocks>>) -> Self {
        let mut trie = Self { regions: regions.into_iter().take(Self::REGIONS_MAX).collect() };
        trie.shrink();
        trie.regions.retain(|_, blocks| !blocks.entries().is_empty());
        trie
    }
}

impl From<HotTrie> for BTreeMap<RegionName, Arc<RegionBlocks>> {
    fn from(trie: HotTrie) -> Self {
        trie.regions
    }
}
