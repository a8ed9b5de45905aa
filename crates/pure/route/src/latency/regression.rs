//! Weighted least squares over a few features, with a prior and without negative results.

use std::array;

use serde::{Deserialize, Serialize};

/// Sums of products of `N` features and a target.
///
/// Recursive least squares keeps an inverse that drifts over millions of updates. Sums do not
/// drift: old ones are scaled down, and the prior is added when they are solved.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Sums<const N: usize> {
    /// Sums of products of two features; both halves are filled.
    pub(super) products: [[f64; N]; N],
    /// Sums of products of a feature and the target.
    pub(super) targets: [f64; N],
}

/// Assumed coefficients before anything was seen.
#[derive(Clone, Copy, Debug)]
pub(super) struct Prior<const N: usize> {
    pub(super) mean: [f64; N],
    /// Certainty of the mean: the reciprocal of its squared deviation, in squared units of the
    /// noise.
    pub(super) precision: [f64; N],
}

impl<const N: usize> Sums<N> {
    pub(super) const EMPTY: Self = Self { products: [[0.0; N]; N], targets: [0.0; N] };

    /// Scales the weight of all past observations.
    pub(super) fn scale(&mut self, keep: f64) {
        self.products.as_flattened_mut().iter_mut().for_each(|sum| *sum *= keep);
        self.targets.iter_mut().for_each(|sum| *sum *= keep);
    }

    /// Adds an observation of this weight.
    pub(super) fn add(&mut self, features: &[f64; N], target: f64, weight: f64) {
        for (row, feature) in self.products.iter_mut().zip(features) {
            for (sum, other) in row.iter_mut().zip(features) {
                *sum += weight * feature * other;
            }
        }
        for (sum, feature) in self.targets.iter_mut().zip(features) {
            *sum += weight * feature * target;
        }
    }

    /// Returns the coefficients that fit best, none of them negative.
    ///
    /// Negative coefficients are set to 0, the worst first, and the others are solved again: the
    /// others must not keep what made up for a negative one.
    pub(super) fn solve(&self, prior: &Prior<N>) -> [f64; N] {
        // Each round fixes one more coefficient, so the loop ends.
        let mut is_free = [true; N];
        loop {
            let solution = self.solve_free(prior, &is_free);
            let worst = (0..N)
                .filter(|&index| is_free[index])
                .min_by(|&a, &b| solution[a].total_cmp(&solution[b]));
            match worst {
                Some(worst) if solution[worst] < 0.0 || !solution[worst].is_finite() => {
                    is_free[worst] = false;
                }
                _ => return solution,
            }
        }
    }

    /// Solves the normal equations of the free coefficients; the others are 0.
    fn solve_free(&self, prior: &Prior<N>, is_free: &[bool; N]) -> [f64; N] {
        let mut matrix = self.products;
        let mut right: [f64; N] =
            array::from_fn(|row| self.targets[row] + prior.precision[row] * prior.mean[row]);
        for row in 0..N {
            matrix[row][row] += prior.precision[row];
            if !is_free[row] {
                // A row of the unit matrix fixes the coefficient at 0.
                matrix[row] = array::from_fn(|column| f64::from(u8::from(row == column)));
                right[row] = 0.0;
            }
        }
        eliminate(&mut matrix, &mut right);
        right
    }

    /// Returns true if all sums are finite.
    pub(super) fn is_sound(&self) -> bool {
        self.products.as_flattened().iter().chain(&self.targets).all(|sum| sum.is_finite())
    }
}

/// Solves in place by Gaussian elimination. The prior makes the matrix positive definite, so no
/// rows have to be swapped.
fn eliminate<const N: usize>(matrix: &mut [[f64; N]; N], right: &mut [f64; N]) {
    for pivot in 0..N {
        let (above, known) = (matrix[pivot], right[pivot]);
        for (row, target) in matrix.iter_mut().zip(right.iter_mut()).skip(pivot + 1) {
            let factor = row[pivot] / above[pivot];
            row.iter_mut().zip(above).for_each(|(cell, above)| *cell -= factor * above);
            *target -= factor * known;
        }
    }
    for row in (0..N).rev() {
        let known: f64 = (row + 1..N).map(|column| matrix[row][column] * right[column]).sum();
        right[row] = (right[row] - known) / matrix[row][row];
    }
}

impl<const N: usize> Serialize for Sums<N> {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        // serde has no implementation for arrays of any length.
        let all: Vec<f64> =
            self.products.as_flattened().iter().chain(&self.targets).copied().collect();
        all.serialize(serializer)
    }
}

impl<'de, const N: usize> Deserialize<'de> for Sums<N> {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let all = Vec::<f64>::deserialize(deserializer)?;
        if all.len() != N * N + N {
            return Err(serde::de::Error::invalid_length(all.len(), &"sums of another model"));
        }
        let products = array::from_fn(|row| array::from_fn(|column| all[row * N + column]));
        Ok(Self { products, targets: array::from_fn(|row| all[N * N + row]) })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const VAGUE: Prior<3> = Prior { mean: [0.0; 3], precision: [1e-9; 3] };

    proptest! {
        #[test]
        fn what_made_the_targets_is_found_again(
            planted in prop::array::uniform3(0.0..50.0_f64),
            seed: u64,
        ) {
            let mut rng = fastrand::Rng::with_seed(seed);
            let mut sums = Sums::<3>::EMPTY;
            for _ in 0..50 {
                let features = [1.0, rng.f64() * 4.0, rng.f64() * 9.0];
                let target = features.iter().zip(planted).map(|(feature, of)| feature * of).sum();
                sums.add(&features, target, 0.1 + rng.f64());
            }
            for (found, planted) in sums.solve(&VAGUE).into_iter().zip(planted) {
                prop_assert!((found - planted).abs() < 1e-3, "{found} instead of {planted}");
            }
        }

        #[test]
        fn nothing_is_ever_negative_and_no_other_answer_that_is_not_fits_better(
            rows in prop::collection::vec((prop::array::uniform3(-2.0..5.0_f64), -50.0..50.0_f64), 1..30),
            other in prop::array::uniform3(0.0..30.0_f64),
        ) {
            let mut sums = Sums::<3>::EMPTY;
            rows.iter().for_each(|(features, target)| sums.add(features, *target, 1.0));
            let prior = Prior { mean: [1.0; 3], precision: [0.1; 3] };
            let found = sums.solve(&prior);
            prop_assert!(found.iter().all(|one| *one >= 0.0), "{found:?}");
            let error = |of: &[f64; 3]| {
                let fit = |(features, target): &([f64; 3], f64)| {
                    let sum: f64 = features.iter().zip(of).map(|(a, b)| a * b).sum();
                    (sum - target).powi(2)
                };
                rows.iter().map(fit).sum::<f64>()
                    + of.iter().map(|one| 0.1 * (one - 1.0).powi(2)).sum::<f64>()
            };
            // To set the worst one to 0 first is nearly always the best answer, and never far from
            // it.
            prop_assert!(error(&found) <= error(&other) * 1.5 + 1e-6);
        }
    }

    #[test]
    fn without_observations_the_prior_is_the_answer() {
        let prior = Prior { mean: [3.0, 0.5, 7.0], precision: [0.1; 3] };
        let found = Sums::<3>::EMPTY.solve(&prior);
        for (found, expected) in found.into_iter().zip(prior.mean) {
            assert!((found - expected).abs() < 1e-9);
        }
    }

    #[test]
    fn sums_of_another_length_are_refused() {
        let json = serde_json::to_string(&Sums::<3>::EMPTY).unwrap();
        assert!(serde_json::from_str::<Sums<3>>(&json).is_ok());
        assert!(serde_json::from_str::<Sums<4>>(&json).is_err());
    }
}
