//! Hot blocks of one region.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use highway::{HighwayHash, HighwayHasher, Key};
use serde::{Deserialize, Serialize};

use super::block::{HotBlock, HotDelta};

/// Hot block as an entry of the trie.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HotEntry {
    /// Chained keyed hash of the block.
    pub hash: u64,
    /// Hash of the block before; 0 for the first block of a prompt.
    pub parent: u64,
    /// Time of its last announcement, in whole seconds of the announcing node's clock.
    pub stamp_s: u32,
    /// Position in the prompt: 1 is the first block.
    pub depth: u16,
    /// Heat at the last announcement, as in [`HotBlock::heat`].
    pub heat: u8,
}

/// Hot blocks of one region: sorted by hash, at most [`Self::BLOCKS_MAX`], and with each block all
/// blocks before it. No value breaks these rules, wherever it was read from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "Vec<HotEntry>", into = "Vec<HotEntry>")]
pub struct RegionBlocks {
    entries: Box<[HotEntry]>,
    digest: u64,
}

/// Effect of a delta on a region.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HotChange {
    /// Number of blocks that are new.
    pub entered: u32,
    /// Number of blocks that are gone, evicted ones included.
    pub left: u32,
    /// True if anything changed, even if only the heat of a block.
    pub is_change: bool,
}

impl RegionBlocks {
    /// Largest number of blocks of one region.
    pub const BLOCKS_MAX: usize = 16_384;

    /// Returns the blocks, sorted by hash.
    #[must_use]
    pub fn entries(&self) -> &[HotEntry] {
        &self.entries
    }

    /// Returns the block with this hash.
    #[must_use]
    pub fn find(&self, hash: u64) -> Option<&HotEntry> {
        self.entries.get(place_of(&self.entries, hash)?)
    }

    /// Returns a digest: equal for equal blocks, and different for different ones with near
    /// certainty.
    #[must_use]
    pub fn digest(&self) -> u64 {
        self.digest
    }

    /// Returns these blocks after a change that was announced at `stamp_ms`.
    pub(super) fn changed_by(&self, delta: &HotDelta, stamp_ms: u64) -> (Self, HotChange) {
        let mut leave: Vec<u64> = delta.leave.iter().copied().take(HotDelta::RECORDS_MAX).collect();
        leave.sort_unstable();
        let stamp_s = u32::try_from(stamp_ms / 1_000).unwrap_or(u32::MAX);
        let enter = delta.enter.iter().take(HotDelta::RECORDS_MAX);
        let stay = self.entries.iter().filter(|entry| leave.binary_search(&entry.hash).is_err());
        // New records come behind old ones, so that `closed` keeps the new one of each hash.
        let all = stay.copied().chain(enter.map(|block| entry_of(block, stamp_s))).collect();
        let after = Self::closed(all).with_at_most(Self::BLOCKS_MAX);
        let kept = after.entries.iter().filter(|entry| self.find(entry.hash).is_some()).count();
        let change = HotChange {
            entered: u32::try_from(after.entries.len() - kept).unwrap_or(u32::MAX),
            left: u32::try_from(self.entries.len() - kept).unwrap_or(u32::MAX),
            is_change: after != *self,
        };
        (after, change)
    }

    /// Returns these blocks without the coldest ones, so that at most `blocks_max` remain.
    ///
    /// Only blocks without children go. Heat halves every ten minutes after its announcement. The
    /// newest stamp among the blocks is the current time, so that every node evicts the same blocks
    /// without a clock.
    pub(super) fn with_at_most(self, blocks_max: usize) -> Self {
        let excess = self.entries.len().saturating_sub(blocks_max);
        if excess == 0 {
            return self;
        }
        let entries = self.entries;
        let newest_s = entries.iter().map(|entry| entry.stamp_s).max().unwrap_or(0);
        let rank = |at: usize| Reverse((warmth(&entries[at], newest_s), entries[at].hash, at));
        let parents: Vec<Option<usize>> =
            entries.iter().map(|entry| place_of(&entries, parent_of(entry)?)).collect();
        let mut children = vec![0_u32; entries.len()];
        parents.iter().flatten().for_each(|parent| children[*parent] += 1);
        let leaves = (0..entries.len()).filter(|at| children[*at] == 0);
        let mut leaves: BinaryHeap<_> = leaves.map(rank).collect();
        let mut is_gone = vec![false; entries.len()];
        for _ in 0..excess {
            let Some(Reverse((_, _, at))) = leaves.pop() else { break };
            is_gone[at] = true;
            let Some(parent) = parents[at] else { continue };
            children[parent] -= 1;
            if children[parent] == 0 {
                // The parent has lost its last child, so it may go next.
                leaves.push(rank(parent));
            }
        }
        let left = entries.iter().zip(is_gone).filter(|(_, is_gone)| !is_gone);
        Self::sorted(left.map(|(entry, _)| *entry).collect())
    }

    /// Returns those `entries` whose chain of parents is complete, each one block deeper than its
    /// parent. Of several entries with one hash the last counts.
    fn closed(mut entries: Vec<HotEntry>) -> Self {
        entries.reverse();
        entries.sort_by_key(|entry| entry.hash);
        entries.dedup_by_key(|entry| entry.hash);
        // Parents come before children, so one pass decides about whole chains.
        let mut by_depth: Vec<usize> = (0..entries.len()).collect();
        by_depth.sort_unstable_by_key(|at| entries[*at].depth);
        let mut is_kept = vec![false; entries.len()];
        for at in by_depth {
            let depth = entries[at].depth;
            is_kept[at] = match parent_of(&entries[at]) {
                None => depth == 1,
                Some(parent) => place_of(&entries, parent)
                    .is_some_and(|place| is_kept[place] && entries[place].depth == depth - 1),
            };
        }
        let kept = entries.into_iter().zip(is_kept).filter(|(_, is_kept)| *is_kept);
        Self::sorted(kept.map(|(entry, _)| entry).collect())
    }

    fn sorted(entries: Box<[HotEntry]>) -> Self {
        let mut hasher = HighwayHasher::new(Key([0; 4]));
        for entry in &entries {
            hasher.append(&entry.hash.to_le_bytes());
            hasher.append(&entry.parent.to_le_bytes());
            hasher.append(&entry.stamp_s.to_le_bytes());
            hasher.append(&entry.depth.to_le_bytes());
            hasher.append(&[entry.heat]);
        }
        Self { entries, digest: hasher.finalize64() }
    }
}

impl Default for RegionBlocks {
    fn default() -> Self {
        Self::sorted(Box::default())
    }
}

impl From<Vec<HotEntry>> for RegionBlocks {
    /// Keeps the `entries` that obey the rules; of entries with one hash the last wins.
    fn from(entries: Vec<HotEntry>) -> Self {
        let normal = entries.into_iter().map(|entry| match entry.depth {
            1 => HotEntry { parent: 0, ..entry },
            _ => entry,
        });
        Self::closed(normal.collect()).with_at_most(Self::BLOCKS_MAX)
    }
}

impl From<RegionBlocks> for Vec<HotEntry> {
    fn from(blocks: RegionBlocks) -> Self {
        blocks.entries.into_vec()
    }
}

fn entry_of(block: &HotBlock, stamp_s: u32) -> HotEntry {
    let HotBlock { hash, parent, depth, heat } = *block;
    HotEntry { hash, parent: if depth == 1 { 0 } else { parent }, stamp_s, depth, heat }
}

/// Returns the index of a hash among entries that are sorted by hash.
fn place_of(entries: &[HotEntry], hash: u64) -> Option<usize> {
    entries.binary_search_by_key(&hash, |entry| entry.hash).ok()
}

/// Returns the hash of the block before; `None` for the first block of a prompt.
fn parent_of(entry: &HotEntry) -> Option<u64> {
    (entry.depth > 1).then_some(entry.parent)
}

/// Returns the heat of an entry at time `newest_s`, as twice its binary logarithm.
fn warmth(entry: &HotEntry, newest_s: u32) -> i64 {
    const HALF_LIFE_S: u32 = 600;
    i64::from(entry.heat) - i64::from(2 * (newest_s - entry.stamp_s) / HALF_LIFE_S)
}
