//! Quantile of a few values.
//!
//! `hdrhistogram` counts the millions of latencies of `spillway-bench`. Here it was not taken: runs have
//! some thousand values, its buckets would round them, and it has no place for NaN, which must count as the
//! worst value.

/// Returns the smallest value that a `share` of all values do not exceed (nearest rank); `None`
/// without values. NaN counts as larger than all numbers.
pub fn quantile(values: impl IntoIterator<Item = f64>, share: f64) -> Option<f64> {
    let mut sorted: Vec<f64> = values.into_iter().collect();
    sorted
        .sort_by(|one, other| one.is_nan().cmp(&other.is_nan()).then_with(|| one.total_cmp(other)));
    let rank = (share * sorted.len() as f64).ceil() as usize;
    sorted.get(rank.max(1) - 1).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(values: std::ops::RangeInclusive<u32>, share: f64) -> Option<f64> {
        quantile(values.map(f64::from), share)
    }

    #[test]
    fn quantiles_are_values_that_occurred() {
        assert_eq!(quantile([], 0.5), None);
        assert_eq!(of(7..=7, 0.5), Some(7.0));
        assert_eq!(of(7..=7, 0.99), Some(7.0));
        assert_eq!(of(1..=2, 0.5), Some(1.0));
        assert_eq!(of(1..=3, 0.5), Some(2.0));
        assert_eq!(quantile([4.0, 1.0, 3.0, 2.0], 0.5), Some(2.0));
        assert_eq!(of(1..=100, 0.99), Some(99.0));
        assert_eq!(of(1..=101, 0.99), Some(100.0));
        assert_eq!(of(1..=200, 0.99), Some(198.0));
        assert_eq!(of(1..=99, 0.99), Some(99.0));
        assert_eq!(of(1..=100, 1.0), Some(100.0));
    }

    #[test]
    fn what_is_no_number_is_the_worst_value() {
        for nothing in [f64::NAN, -f64::NAN] {
            assert_eq!(quantile([nothing, 19.0, f64::INFINITY], 0.5), Some(f64::INFINITY));
            assert!(quantile([19.0, nothing, 19.0], 0.95).is_some_and(f64::is_nan));
        }
    }
}
