//! The hot trie as requests read it.

use spillway_types::RegionName;

use super::trie::HotTrie;
use crate::descend::{Probes, descend};

/// Probes of one look-up: 50 regions whose knowledge of a 4,096-block prompt ends at 50 depths.
const PROBES_MAX: u32 = 2_048;
/// No place of the table.
const NOWHERE: u32 = u32::MAX;

/// How deep each region holds a prompt, by its hot blocks. Immutable: made anew when the trie
/// changes.
#[derive(Clone, Debug, Default)]
pub struct HotView {
    regions: Vec<RegionName>,
    /// Words of a bit for each region.
    words: usize,
    /// Open addressing, half full: a block's hash, or 0 where there is none.
    hashes: Vec<u64>,
    /// The regions of the block at the same place, [`HotView::words`] words each.
    masks: Vec<u64>,
}

impl HotView {
    /// A view of `trie`.
    #[must_use]
    pub fn new(trie: &HotTrie) -> Self {
        let regions: Vec<RegionName> = trie.regions().map(|(name, _)| name.clone()).collect();
        let words = regions.len().div_ceil(64).max(1);
        // At most as many as if no region shared a block with another.
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

    /// The regions with hot blocks, by name; a region's place here is its index in
    /// [`HotView::lookup`].
    #[must_use]
    pub fn regions(&self) -> &[RegionName] {
        &self.regions
    }

    /// Bytes that it takes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        (self.hashes.capacity() + self.masks.capacity()) * size_of::<u64>()
    }

    /// Writes for each region how many leading blocks of `chain` it holds. Regions beyond the end
    /// of `depths` are left out; places without a region become 0. Allocates nothing.
    pub fn lookup(&self, chain: &[u64], depths: &mut [u32]) {
        depths.fill(0);
        if !self.hashes.is_empty() {
            descend(&mut Lookup { view: self, chain, depths, probes: 0 }, chain.len());
        }
    }

    fn add(&mut self, hash: u64, region: usize) {
        // A hash of 0 stands for no block; one block of 2^64 is never found for it.
        let mut place = self.home(hash);
        while self.hashes[place] != 0 && self.hashes[place] != hash {
            place = (place + 1) % self.hashes.len();
        }
        self.hashes[place] = hash;
        self.masks[place * self.words + region / 64] |= 1 << (region % 64);
    }

    /// Where the block is; [`NOWHERE`] if it is in no region.
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
        let mixed = hash.rotate_left(32).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        ((u128::from(mixed) * self.hashes.len() as u128) >> 64) as usize
    }

    fn mask(&self, place: u32) -> &[u64] {
        let start = place as usize * self.words;
        self.masks.get(start..start + self.words).unwrap_or(&[])
    }
}

/// One look-up under way.
struct Lookup<'a> {
    view: &'a HotView,
    chain: &'a [u64],
    depths: &'a mut [u32],
    probes: u32,
}

/// A block's place and how many regions hold it.
#[derive(Clone, Copy)]
struct Found {
    place: u32,
    regions: u32,
}

impl Probes for Lookup<'_> {
    type Found = Found;

    fn warm(&self, index: usize) {
        let place = self.view.home(self.chain[index]);
        std::hint::black_box(self.view.hashes.get(place).copied());
        std::hint::black_box(self.view.masks.get(place * self.view.words).copied());
    }

    fn probe(&mut self, index: usize) -> Option<Found> {
        self.probes += 1;
        let place = self.view.place(self.chain[index]);
        let regions = self.view.mask(place).iter().map(|word| word.count_ones()).sum();
        (self.probes <= PROBES_MAX).then_some(Found { place, regions })
    }

    fn is_none(found: Found) -> bool {
        found.place == NOWHERE
    }

    fn is_same(left: Found, right: Found) -> bool {
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
                bits &= bits - 1;
            }
        }
    }
}
