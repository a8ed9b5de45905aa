//! Quantiles of a list of numbers.

use serde::Serialize;

/// Quantiles of a quantity over a run, in its own unit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Quantiles {
    /// Median.
    pub p50: f64,
    /// 90th percentile.
    pub p90: f64,
    /// 95th percentile.
    pub p95: f64,
    /// 99th percentile.
    pub p99: f64,
    /// Mean.
    pub mean: f64,
}

impl Quantiles {
    /// Returns the quantiles of these numbers, in any order; all 0 if there are none.
    #[must_use]
    pub fn of(mut numbers: Vec<f64>) -> Self {
        if numbers.is_empty() {
            return Self::default();
        }
        // Exact, by hand: equal runs have equal figures to the last digit, which the buckets of a histogram
        // would hide.
        numbers.sort_unstable_by(f64::total_cmp);
        let at = |share: f64| numbers[((numbers.len() - 1) as f64 * share).round() as usize];
        Self {
            p50: at(0.5),
            p90: at(0.9),
            p95: at(0.95),
            p99: at(0.99),
            mean: numbers.iter().sum::<f64>() / numbers.len() as f64,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_stand_at_their_ranks() {
        let all = Quantiles::of((0..=100).rev().map(f64::from).collect());
        assert_eq!((all.p50, all.p90, all.p95, all.p99), (50.0, 90.0, 95.0, 99.0));
        assert_eq!(all.mean, 50.0);
        assert_eq!(Quantiles::of(Vec::new()), Quantiles::default());
    }
}
