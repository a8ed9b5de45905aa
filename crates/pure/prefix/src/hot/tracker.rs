//! Heat of the blocks that a region's requests share.

use std::collections::BTreeMap;

use super::block::{HotBlock, HotDelta};
use super::block_map::{BlockMap, BlockSet};
use super::config::HeatConfig;
use super::gate::Gate;
use super::region_blocks::RegionBlocks;
use crate::index::is_kept;

/// Number of blocks tracked for each block that may be announced; the colder ones are candidates.
const TRACKED_PER_TOLD: usize = 4;
/// Number of half-lives after which all heat is scaled down: a weight of 2^32 is still exact
/// enough.
const SCALE_HALF_LIVES_MAX: f64 = 32.0;
/// Change of heat after which it is announced again: four times as much or as little, in units of
/// [`HotBlock::heat`].
const HEAT_STEP: u8 = 4;

/// Counter of requests per block that decides which blocks became hot or cold. Each node has one.
/// The nodes of one region take turns in announcing, see [`HeatTracker::adopt`].
#[derive(Debug)]
pub struct HeatTracker {
    config: HeatConfig,
    gate: Gate,
    tracked: BlockMap<TrackedBlock>,
    /// Announced heat by hash: the expected content of the region's part of the trie.
    told: BTreeMap<u64, u8>,
    /// Time that all heat refers to: a request at this time weighs 1.
    scale_ms: u64,
}

#[derive(Clone, Copy, Debug)]
struct TrackedBlock {
    parent: u64,
    heat: f32,
    depth: u16,
}

/// Verdict on one block on the path from a block to the beginning of its prompt.
enum BlockVerdict {
    /// The block is already selected, and so are all blocks before it.
    Arrived,
    /// The block cannot stay, nor any block behind it.
    Refused,
    /// The block may stay if the one before it may.
    Further,
}

/// Size of a [`HeatTracker`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HeatStats {
    /// Number of blocks whose heat is tracked.
    pub tracked: u64,
    /// Number of blocks that were announced to other regions.
    pub told: u64,
}

impl HeatTracker {
    /// Creates an empty tracker. Values of `config` outside their limits are moved within.
    #[must_use]
    pub fn new(config: HeatConfig) -> Self {
        let config = HeatConfig {
            blocks_max: config.blocks_max.clamp(16, RegionBlocks::BLOCKS_MAX),
            half_life_ms: config.half_life_ms.max(1_000),
            heat_min: if config.heat_min.is_finite() { config.heat_min.max(0.0) } else { 3.0 },
        };
        Self {
            config,
            gate: Gate::new(),
            tracked: BlockMap::default(),
            told: BTreeMap::new(),
            scale_ms: 0,
        }
    }

    /// Counts a request with the blocks `chain` at `now_ms`, of any clock that does not go back.
    pub fn note(&mut self, chain: &[u64], now_ms: u64) {
        let weight = self.weight(now_ms);
        let mut parent = 0;
        // Blocks deeper than the depth field of a record can count are left out.
        for (depth, hash) in (1..=u16::MAX).zip(chain) {
            if let Some(tracked) = self.tracked.get_mut(hash) {
                tracked.heat += weight;
            } else if self.gate.passes(*hash) {
                // This is the second sight of the block, so both requests count.
                self.tracked.insert(*hash, TrackedBlock { parent, heat: 2.0 * weight, depth });
            }
            parent = *hash;
        }
        if self.tracked.len() > TRACKED_PER_TOLD * self.config.blocks_max {
            self.prune();
        }
    }

    /// Replaces the announced set by the region's part of the trie: when this node takes over
    /// announcing, and when a proposal of this node was refused.
    pub fn adopt(&mut self, blocks: Option<&RegionBlocks>) {
        let entries = blocks.map(RegionBlocks::entries).unwrap_or_default();
        self.told = entries.iter().map(|entry| (entry.hash, entry.heat)).collect();
    }

    /// Returns the blocks that became hot or cold since the last delta. They count as announced
    /// from now on.
    ///
    /// `held` returns true if any replica of the region still holds a block. It is asked about blocks
    /// that have records in a [`FineIndex`](crate::FineIndex); the others count as held with the one
    /// before. Blocks enter when they are among the best four fifths of the room, ranked by heat times
    /// depth. They stay while they are within the whole room. All blocks before a block are announced
    /// with it.
    pub fn delta(&mut self, now_ms: u64, held: impl Fn(u64) -> bool) -> HotDelta {
        let weight = self.weight(now_ms);
        let (enter, stay) = self.select(weight, held);
        let mut leave: Vec<u64> =
            self.told.keys().filter(|hash| !stay.contains(hash)).copied().collect();
        // Children leave before their parents if not all can leave at once.
        leave.sort_by_key(|hash| {
            std::cmp::Reverse(self.tracked.get(hash).map_or(u16::MAX, |tracked| tracked.depth))
        });
        leave.truncate(HotDelta::RECORDS_MAX);
        for hash in &leave {
            self.told.remove(hash);
        }
        let mut delta = HotDelta { enter: Vec::new(), leave };
        for block in enter {
            if delta.enter.len() == HotDelta::RECORDS_MAX {
                break;
            }
            let is_news = match self.told.get(&block.hash) {
                Some(heat) => heat.abs_diff(block.heat) >= HEAT_STEP,
                // A new block must find room; a known one only changes its heat.
                None => self.told.len() < self.config.blocks_max,
            };
            if is_news {
                self.told.insert(block.hash, block.heat);
                delta.enter.push(block);
            }
        }
        delta
    }

    /// Forgets everything, because the key of the block hashes has changed.
    pub fn clear(&mut self) {
        self.gate = Gate::new();
        self.tracked.clear();
        self.told.clear();
    }

    /// Returns the size of the tracker.
    #[must_use]
    pub fn stats(&self) -> HeatStats {
        HeatStats { tracked: self.tracked.len() as u64, told: self.told.len() as u64 }
    }

    /// Returns the weight of a request at `now_ms`. Scales all heat down when weights become too
    /// large.
    fn weight(&mut self, now_ms: u64) -> f32 {
        if self.tracked.is_empty() {
            self.scale_ms = now_ms;
        }
        let half_lives =
            now_ms.saturating_sub(self.scale_ms) as f64 / self.config.half_life_ms as f64;
        if half_lives <= SCALE_HALF_LIVES_MAX {
            return half_lives.exp2() as f32;
        }
        let factor = (-half_lives).exp2() as f32;
        self.tracked.values_mut().for_each(|tracked| tracked.heat *= factor);
        self.scale_ms = now_ms;
        1.0
    }

    /// Returns the blocks that enter, parents before children, and the hashes of all blocks that
    /// may stay.
    fn select(&self, weight: f32, held: impl Fn(u64) -> bool) -> (Vec<HotBlock>, BlockSet) {
        let heat_stay = self.config.heat_min / 2.0 * weight;
        let mut ranked: Vec<(f32, u64)> = self
            .tracked
            .iter()
            .filter(|(_, tracked)| tracked.heat >= heat_stay)
            .map(|(hash, tracked)| (tracked.heat * f32::from(tracked.depth), *hash))
            .collect();
        ranked
            .sort_unstable_by(|left, right| right.0.total_cmp(&left.0).then(left.1.cmp(&right.1)));
        // The gap between both limits is hysteresis: blocks near the limit do not come and go.
        let enter_max = self.config.blocks_max * 4 / 5;
        let (mut enter, mut stay) = (Vec::new(), BlockSet::default());
        let (mut entering, mut refused) = (BlockSet::from_iter([0]), BlockSet::default());
        for (_, hash) in ranked {
            let (path, is_whole) = self.path(hash, |block, tracked| {
                if stay.contains(&block) {
                    BlockVerdict::Arrived
                } else if tracked.heat < heat_stay
                    || refused.contains(&block)
                    || (is_kept(tracked.depth.into()) && !held(block))
                {
                    BlockVerdict::Refused
                } else {
                    BlockVerdict::Further
                }
            });
            if !is_whole {
                // Blocks that continue these are then refused without walking the whole path again.
                refused.extend(path.into_iter().map(|(hash, _)| hash));
                continue;
            }
            if stay.len() + path.len() > self.config.blocks_max {
                break;
            }
            for (hash, tracked) in path.into_iter().rev() {
                stay.insert(hash);
                // The filter may have let a parent in late, so it may be colder than its child: it
                // enters first.
                let parent = if tracked.depth == 1 { 0 } else { tracked.parent };
                let may_enter = stay.len() <= enter_max
                    && tracked.heat >= self.config.heat_min * weight
                    && entering.contains(&parent);
                if may_enter || self.told.contains_key(&hash) {
                    entering.insert(hash);
                    enter.push(tracked.block(hash, weight));
                }
            }
        }
        (enter, stay)
    }

    /// Returns the block and its ancestors up to the verdict of `judge`. The flag is true if the
    /// path reaches a block that stays, or the first block of a prompt.
    fn path(
        &self,
        hash: u64,
        judge: impl Fn(u64, &TrackedBlock) -> BlockVerdict,
    ) -> (Vec<(u64, TrackedBlock)>, bool) {
        let (mut path, mut hash) = (Vec::new(), hash);
        while let Some(tracked) = self.tracked.get(&hash) {
            match judge(hash, tracked) {
                BlockVerdict::Arrived => return (path, true),
                BlockVerdict::Refused => return (path, false),
                BlockVerdict::Further => path.push((hash, *tracked)),
            }
            if tracked.depth <= 1 {
                return (path, true);
            }
            hash = tracked.parent;
        }
        (path, false)
    }

    /// Forgets the colder half of the blocks, children before their parents.
    fn prune(&mut self) {
        let keep = TRACKED_PER_TOLD * self.config.blocks_max / 2;
        let mut ranked: Vec<(f32, u16, u64)> =
            self.tracked.iter().map(|(hash, it)| (it.heat, it.depth, *hash)).collect();
        ranked.sort_unstable_by(|left, right| {
            right.0.total_cmp(&left.0).then(left.1.cmp(&right.1)).then(left.2.cmp(&right.2))
        });
        for (_, _, hash) in ranked.drain(keep..) {
            self.tracked.remove(&hash);
        }
    }
}

impl TrackedBlock {
    fn block(self, hash: u64, weight: f32) -> HotBlock {
        let level = (2.0 * (self.heat / weight).max(1.0).log2()).round();
        HotBlock { hash, parent: self.parent, depth: self.depth, heat: level.min(255.0) as u8 }
    }
}
