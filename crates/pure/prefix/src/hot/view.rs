//! Read-only view of the hot trie for requests.

use spillway_types::RegionName;

use super::trie::HotTrie;
use crate::descend::{Probes, descend};

/// Largest number of probes of one look-up: enough for a prompt of 4,096 blocks that 50 regions
/// hold up to 50 different depths.
const PROBES_MAX: u32 = 2_048;
/// Slot number that means: no slot.
const NOWHERE: u32 = u32::MAX;

/// Number of leading blocks that each region holds of a prompt, by its hot blocks. Immutable: a new
/// view replaces it when the trie changes.
#[derive(Clone, Debug, Default)]
pub struct HotView {
    regions: Vec<RegionName>,
    /// Words per block of the bit set with one bit per region.
    words: usize,
    /// Hashes in open addressing, half full; 0 means an empty slot.
    hashes: Vec<u64>,
    /// Regions of the block in the same slot, [`HotView::words`] words each.
    masks: Vec<u64>,
}

impl HotView {
    /// Creates a view of `trie`.
    #[must_use]
    pub fn new(trie: &HotTrie) -> Self {
        let regions: Vec<RegionName> = trie.regions().map(|(name, _)| name.clone()).collect();
        let words = regions.len().div_ceil(64).max(1);
        // Upper bound: as if no two regions shared a block.
        let places = 2 * trie.stats().blocks as usize;
        let mut view =
            Self { regions, words, hashes: vec![0; places], masks: vec![0; places * words] };
        for (region, (_, blocks)) in trie.regions().enumerate() {
            for entry in blocks.entries() {
                view.add(entry.hash, region);
            }
        }
        view
    }

    /// Returns the regions with hot blocks, by name. The position here is the index in
    /// [`HotView::lookup`].
    #[must_use]
    pub fn regions(&self) -> &[RegionName] {
        &self.regions
    }

    /// Returns the bytes that the view takes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        (self.hashes.capacity() + self.masks.capacity()) * size_of::<u64>()
    }

    /// Writes for each region the number of leading blocks of `chain` that it holds. Regions beyond
    /// the end of `depths` are left out; entries without a region become 0. Allocates nothing.
    pub fn lookup(&self, chain: &[u64], depths: &mut [u32]) {
        depths.fill(0);
        if !self.hashes.is_empty() {
            descend(&mut HotLookup { view: self, chain, depths, probes: 0 }, chain.len());
        }
    }

    fn add(&mut self, hash: u64, region: usize) {
        // The hash 0 means an empty slot, so one block in 2^64 is never found.
        let mut place = self.home(hash);
        while self.hashes[place] != 0 && self.hashes[place] != hash {
            place = (place + 1) % self.hashes.len();
        }
        self.hashes[place] = hash;
        self.masks[place * self.words + region / 64] |= 1 << (region % 64);
    }

    /// Returns the slot of a block; [`NOWHERE`] if no region holds it.
    fn place(&self, hash: u64) -> u32 {
        let mut place = self.home(hash);
        loop {
            match self.hashes[place] {
                0 => return NOWHERE,
                found if found == hash => return place as u32,
                _ => place = (place + 1) % self.hashes.len(),
            }
        }
    }

    fn home(&self, hash: u64) -> usize {
        // The upper bits choose the slot; 2^64 divided by the golden ratio spreads the hashes.
        let mixed = hash.rotate_left(32).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        ((u128::from(mixed) * self.hashes.len() as u128) >> 64) as usize
    }

    fn mask(&self, place: u32) -> &[u64] {
        let start = place as usize * self.words;
        self.masks.get(start..start + self.words).unwrap_or(&[])
    }
}

/// Look-up in progress.
struct HotLookup<'a> {
    view: &'a HotView,
    chain: &'a [u64],
    depths: &'a mut [u32],
    probes: u32,
}

/// Slot of a block, and the number of regions that hold it.
#[derive(Clone, Copy)]
struct FoundBlock {
    place: u32,
    regions: u32,
}

impl Probes for HotLookup<'_> {
    type Found = FoundBlock;

    fn warm(&self, index: usize) {
        let place = self.view.home(self.chain[index]);
        std::hint::black_box(self.view.hashes.get(place).copied());
        std::hint::black_box(self.view.masks.get(place * self.view.words).copied());
    }

    fn probe(&mut self, index: usize) -> Option<FoundBlock> {
        self.probes += 1;
        let place = self.view.place(self.chain[index]);
        let regions = self.view.mask(place).iter().map(|word| word.count_ones()).sum();
        (self.probes <= PROBES_MAX).then_some(FoundBlock { place, regions })
    }

    fn is_none(found: FoundBlock) -> bool {
        found.place == NOWHERE
    }

    fn is_same(left: FoundBlock, right: FoundBlock) -> bool {
        left.regions == right.regions
    }

    fn emit(&mut self, index: usize) {
        let mask = self.view.mask(self.view.place(self.chain[index]));
        for (word, bits) in mask.iter().enumerate() {
            let mut bits = *bits;
            while bits != 0 {
                let region = word * 64 + bits.trailing_zeros() as usize;
                if let Some(depth) = self.depths.get_mut(region) {
                    *depth = index as u32 + 1;
                }
                // Clears the lowest bit that is set.
                bits &= bits - 1;
            }
        }
    }
}
