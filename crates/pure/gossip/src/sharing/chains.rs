//! Chains of shared blocks: which block follows which.

use std::collections::BTreeMap;

/// Blocks with the one before each, within a limit: when the room is full, the least recently used
/// half goes.
#[derive(Debug)]
pub(crate) struct Chains {
    /// Blocks used since the last half went.
    young: BTreeMap<u64, ChainLink>,
    old: BTreeMap<u64, ChainLink>,
    half_max: usize,
}

/// Place of a block in its chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct ChainLink {
    /// The block before; meaningless for the first.
    before: u64,
    /// Number of blocks before it.
    depth: u32,
}

impl Chains {
    /// Creates room for `blocks_max` blocks, at some 40 bytes each.
    pub(crate) fn new(blocks_max: usize) -> Self {
        let half_max = (blocks_max / 2).max(1);
        Self { young: BTreeMap::new(), old: BTreeMap::new(), half_max }
    }

    /// Returns how many leading blocks of `chain` are known. Blocks before a known block are known
    /// too, except some that were not used for long.
    pub(crate) fn known(&self, chain: &[u64]) -> usize {
        // From the end: a prompt mostly adds little to one that is known.
        (0..chain.len()).rev().find(|at| self.has(chain, *at)).map_or(0, |at| at + 1)
    }

    fn has(&self, chain: &[u64], at: usize) -> bool {
        let link = self.link(chain[at]);
        link.is_some_and(|link| {
            link.depth as usize == at && (at == 0 || link.before == chain[at - 1])
        })
    }

    /// Notes that `chain` is in use.
    pub(crate) fn note(&mut self, chain: &[u64]) {
        for (at, block) in chain.iter().enumerate() {
            let before = at.checked_sub(1).map_or(0, |at| chain[at]);
            let depth = u32::try_from(at).unwrap_or(u32::MAX);
            self.young.insert(*block, ChainLink { before, depth });
        }
        // Only now, so that the half that goes is never a part of this chain.
        if self.young.len() > self.half_max {
            self.old = std::mem::take(&mut self.young);
        }
    }

    /// Returns the whole chain that ends with `last`; `None` if a part of it is not known.
    pub(crate) fn chain(&self, last: u64) -> Option<Vec<u64>> {
        let mut link = self.link(last)?;
        let mut chain = vec![last];
        while link.depth > 0 {
            let before = self.link(link.before)?;
            // Depths fall by one a step, so that this loop ends with any input.
            if before.depth + 1 != link.depth {
                return None;
            }
            chain.push(link.before);
            link = before;
        }
        chain.reverse();
        Some(chain)
    }

    pub(crate) fn clear(&mut self) {
        self.young.clear();
        self.old.clear();
    }

    /// Returns the number of blocks that are known.
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.young.len() + self.old.len()
    }

    fn link(&self, block: u64) -> Option<ChainLink> {
        self.young.get(&block).or_else(|| self.old.get(&block)).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_chain_reads_back_from_its_last_block_and_from_any_other() {
        let mut chains = Chains::new(100);
        chains.note(&[1, 2, 3]);
        chains.note(&[1, 2, 9]);
        assert_eq!(chains.chain(3), Some(vec![1, 2, 3]));
        assert_eq!(chains.chain(9), Some(vec![1, 2, 9]));
        assert_eq!(chains.chain(1), Some(vec![1]));
        assert_eq!(chains.chain(4), None);
        assert_eq!(chains.known(&[1, 2, 3, 4]), 3);
        assert_eq!(chains.known(&[1, 2, 5]), 2);
        assert_eq!(chains.known(&[2, 3]), 0, "another place is another prompt");
        chains.clear();
        assert_eq!((chains.known(&[1]), chains.chain(1)), (0, None));
    }

    #[test]
    fn what_was_used_last_stays_within_the_room_there_is() {
        let mut chains = Chains::new(100);
        for start in 0..1_000_u64 {
            chains.note(&[7, 8]);
            chains.note(&[start * 10 + 100, start * 10 + 101]);
            assert!(chains.len() <= 104, "{}", chains.len());
        }
        assert_eq!(chains.chain(8), Some(vec![7, 8]), "in use all the time");
        assert_eq!(chains.chain(101), None, "long ago");
    }

    #[test]
    fn blocks_that_follow_on_each_other_in_a_ring_end_somewhere() {
        let mut chains = Chains::new(100);
        chains.note(&[1, 2]);
        chains.note(&[2, 1]);
        // Now the first is the second's, and the second the first's.
        assert!(chains.chain(1).is_none_or(|chain| chain.len() <= 2));
        assert!(chains.chain(2).is_none_or(|chain| chain.len() <= 2));
    }
}
