//! Weighted draws in constant time (Walker's alias method), exact in integers.

/// Draws positions with probabilities in proportion to their weights.
#[derive(Debug)]
pub(crate) struct AliasTable {
    columns: Vec<Column>,
    /// Sum of all weights: the height of every column.
    height: u64,
}

impl AliasTable {
    /// Prepares draws of positions `0..n` for `n` weights of at least 1, whose sum times `n` fits.
    pub(crate) fn new(weights: impl Iterator<Item = u64>) -> Self {
        let weights: Vec<u64> = weights.collect();
        let height = weights.iter().sum();
        // A weight equal to the mean fills its column; a smaller one is filled up from larger ones.
        let mut left: Vec<u64> =
            weights.iter().map(|weight| weight * weights.len() as u64).collect();
        let (mut small, mut large): (Vec<_>, Vec<_>) =
            (0..left.len()).partition(|&position| left[position] < height);
        let mut columns: Vec<Column> =
            (0..left.len()).map(|position| Column { own: height, other: position }).collect();
        // Each step fills one small column for good, and takes the rest from a large one.
        while let (Some(low), Some(&high)) = (small.pop(), large.last()) {
            columns[low] = Column { own: left[low], other: high };
            left[high] -= height - left[low];
            if left[high] < height {
                large.pop();
                small.push(high);
            }
        }
        Self { columns, height }
    }

    /// Draws a position; the table must have one.
    pub(crate) fn draw(&self, rng: &mut fastrand::Rng) -> usize {
        let position = rng.usize(..self.columns.len());
        let Column { own, other } = self.columns[position];
        // Full columns, which is all of them if the weights are equal, save the second random
        // number.
        if own == self.height || rng.u64(..self.height) < own { position } else { other }
    }
}

/// One equally likely column: `own` of its height belongs to its position, the rest to `other`.
#[derive(Debug, Clone, Copy)]
struct Column {
    own: u64,
    other: usize,
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The largest weight a candidate can have, in thousandths.
    const LARGEST: u64 = u32::MAX as u64 * 1_000;

    /// Returns the draws that give each position, of `weights.len() * sum` equally likely ones.
    fn exact_shares(table: &AliasTable) -> Vec<u64> {
        let mut shares = vec![0; table.columns.len()];
        for (position, column) in table.columns.iter().enumerate() {
            shares[position] += column.own;
            shares[column.other] += table.height - column.own;
        }
        shares
    }

    proptest! {
        #[test]
        fn probabilities_are_exactly_the_weights(
            weights in prop::collection::vec(
                prop_oneof![1..10_u64, 1..=LARGEST, Just(1), Just(LARGEST)], 0..50),
        ) {
            let table = AliasTable::new(weights.iter().copied());
            let count = weights.len() as u64;
            let expected: Vec<u64> = weights.iter().map(|&weight| weight * count).collect();
            prop_assert_eq!(exact_shares(&table), expected);
        }
    }

    #[test]
    fn draws_follow_the_columns() {
        let table = AliasTable::new([1, 3].into_iter());
        let mut rng = fastrand::Rng::with_seed(3);
        let ones: usize = (0..40_000).map(|_| table.draw(&mut rng)).sum();
        assert!((29_600..30_400).contains(&ones), "{ones} of 40,000 draws, expected 30,000");
    }
}
