//! Set of small numbers that fills mostly from below.

/// Set of the operations of an order. Equal sets have equal [`Bits::window`]s, and windows are
/// short: in a history of ten thousand operations two attempts differ only in a few recent ones.
#[derive(Clone, Debug)]
pub(crate) struct Bits {
    words: Vec<u64>,
    /// Index of the first word that is not full.
    low: usize,
    /// Index after the last word that is not empty.
    high: usize,
}

/// Key that identifies a set among others of the same size: index of the first word that is not
/// full, and the words from there to the last one in use.
pub(crate) type Window = (usize, Box<[u64]>);

impl Bits {
    pub(crate) fn new(count: usize) -> Self {
        Self { words: vec![0; count.div_ceil(64) + 1], low: 0, high: 0 }
    }

    pub(crate) fn insert(&mut self, number: usize) {
        let word = number / 64;
        self.words[word] |= 1 << (number % 64);
        self.high = self.high.max(word + 1);
        // The last word is never filled, so this loop ends.
        while self.words[self.low] == u64::MAX {
            self.low += 1;
        }
    }

    pub(crate) fn remove(&mut self, number: usize) {
        let word = number / 64;
        self.words[word] &= !(1 << (number % 64));
        self.low = self.low.min(word);
        // Empty words at the end would make equal sets look different.
        while self.high > 0 && self.words[self.high - 1] == 0 {
            self.high -= 1;
        }
    }

    pub(crate) fn contains(&self, number: usize) -> bool {
        self.words[number / 64] & (1 << (number % 64)) != 0
    }

    pub(crate) fn window(&self) -> Window {
        (self.low, self.words[self.low..self.high.max(self.low)].into())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::{prop_assert_eq, proptest};

    use super::*;

    proptest! {
        #[test]
        fn windows_are_equal_exactly_when_sets_are(
            changes in proptest::collection::vec((0..2_usize, 0..200_usize), 0..400),
            full in 0..200_usize,
        ) {
            let mut sets = [BTreeSet::new(), BTreeSet::new()];
            let mut bits = [Bits::new(200), Bits::new(200)];
            for number in 0..full {
                for which in 0..2 {
                    sets[which].insert(number);
                    bits[which].insert(number);
                }
            }
            for (which, number) in changes {
                if sets[which].insert(number) {
                    bits[which].insert(number);
                } else {
                    sets[which].remove(&number);
                    bits[which].remove(number);
                }
                prop_assert_eq!(bits[0].window() == bits[1].window(), sets[0] == sets[1]);
                prop_assert_eq!(bits[which].contains(number), sets[which].contains(&number));
            }
        }
    }
}
