//! Maps and sets of blocks, which use the blocks' own hashes.

#![expect(
    clippy::disallowed_types,
    reason = "the hasher has no seed, so that the order is the same in each run"
)]

use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasherDefault, Hasher};

/// Map by the hash of a block. Its order differs from that of the hashes, so code that walks
/// through it sorts the result.
pub(super) type BlockMap<V> = HashMap<u64, V, BuildHasherDefault<BlockHasher>>;

/// Set of hashes of blocks.
pub(super) type BlockSet = HashSet<u64, BuildHasherDefault<BlockHasher>>;

/// Odd number near 2^64 divided by the golden ratio: products spread over all bits.
const SPREAD: u64 = 0x9E37_79B9_7F4A_7C15;

/// Hasher of hashes of blocks. These are made under a secret key, so no client can choose ones that
/// collide.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct BlockHasher(u64);

impl Hasher for BlockHasher {
    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_u64(u64::from(*byte));
        }
    }

    fn write_u64(&mut self, hash: u64) {
        // Both halves of the product together have something of each bit.
        let product = u128::from(self.0 ^ hash) * u128::from(SPREAD);
        self.0 = product as u64 ^ (product >> 64) as u64;
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_are_found_and_their_hashes_are_spread_over_all_bits() {
        let map: BlockMap<u64> = (0..1_000).map(|block| (block << 40, block)).collect();
        assert!((0..1_000).all(|block| map.get(&(block << 40)) == Some(&block)));
        assert_eq!(map.get(&1), None);
        let ends = |block: u64| {
            let mut hasher = BlockHasher::default();
            hasher.write_u64(block << 40);
            (hasher.finish() & 0xFF, hasher.finish() >> 56)
        };
        let low: HashSet<u64> = (0..1_000).map(|block| ends(block).0).collect();
        let high: HashSet<u64> = (0..1_000).map(|block| ends(block).1).collect();
        assert!(low.len() > 128 && high.len() > 128, "{} and {}", low.len(), high.len());
    }
}
