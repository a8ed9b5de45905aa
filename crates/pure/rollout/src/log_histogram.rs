//! Histogram with buckets of equal ratio, which can be added to others of its kind.

use serde::{Deserialize, Serialize};

/// Buckets in each doubling of the value: neighbours differ by 4.4 %.
const PER_DOUBLING: f64 = 16.0;
/// Upper bound of the first bucket. Time is in milliseconds here, so a tenth of a microsecond is
/// below all that is measured.
const FIRST: f64 = 1.0 / 1024.0;
/// Number of the last bucket, which holds everything above 2^22: 70 minutes in milliseconds.
const LAST: u16 = 512;

/// Counts of values by size. Bucket `i` holds values above `FIRST * 2^((i-1)/16)` up to
/// `FIRST * 2^(i/16)`; the first one also holds 0.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LogHistogram {
    /// Number of a bucket and its count, by rising number; counts are above 0.
    buckets: Vec<(u16, u64)>,
}

impl LogHistogram {
    /// Counts a value. Values that are no number count as 0.
    pub fn record(&mut self, value: f64) {
        self.add_to(bucket(value), 1);
    }

    /// Adds all counts of `other`.
    pub fn merge(&mut self, other: &Self) {
        for &(number, count) in &other.buckets {
            self.add_to(number.min(LAST), count);
        }
    }

    /// Returns the number of values.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.buckets.iter().fold(0, |sum, &(_, count)| sum.saturating_add(count))
    }

    /// Returns the value which the share `quantile` of all values does not exceed, rounded up by
    /// at most 4.4 %; `None` without values.
    #[must_use]
    pub fn quantile(&self, quantile: f64) -> Option<f64> {
        let wanted = crate::evidence::to_f64(self.count()) * quantile;
        let mut below = 0;
        for &(number, count) in &self.buckets {
            below += count;
            if crate::evidence::to_f64(below) >= wanted {
                return Some(upper_bound(number));
            }
        }
        self.buckets.last().map(|&(number, _)| upper_bound(number))
    }

    /// Returns the number of values in buckets up to `number`.
    pub(crate) fn up_to(&self, number: u16) -> u64 {
        let covered = self.buckets.partition_point(|&(own, _)| own <= number);
        self.buckets[..covered].iter().map(|&(_, count)| count).sum()
    }

    /// Returns the numbers of all buckets with values, by rising number.
    pub(crate) fn numbers(&self) -> impl Iterator<Item = u16> {
        self.buckets.iter().map(|&(number, _)| number)
    }

    fn add_to(&mut self, number: u16, count: u64) {
        match self.buckets.binary_search_by_key(&number, |&(own, _)| own) {
            Ok(at) => self.buckets[at].1 = self.buckets[at].1.saturating_add(count),
            Err(at) => self.buckets.insert(at, (number, count)),
        }
    }
}

/// Returns the number of buckets by which a value moves up when it is multiplied by `factor`,
/// rounded up; 0 for factors up to 1.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "it is clamped")]
pub(crate) fn buckets_of_factor(factor: f64) -> u16 {
    (factor.log2() * PER_DOUBLING).ceil().clamp(0.0, f64::from(LAST)) as u16
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "it is clamped")]
fn bucket(value: f64) -> u16 {
    let number = ((value / FIRST).log2() * PER_DOUBLING).ceil();
    // The logarithm of 0 is below all numbers, that of a negative value is none.
    if number.is_nan() { 0 } else { number.clamp(0.0, f64::from(LAST)) as u16 }
}

fn upper_bound(number: u16) -> f64 {
    FIRST * (f64::from(number) / PER_DOUBLING).exp2()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quantile_is_rounded_up_by_a_bucket_at_most() {
        let mut histogram = LogHistogram::default();
        (1..=1_000).for_each(|value| histogram.record(f64::from(value)));
        for (quantile, exact) in [(0.0, 1.0), (0.5, 500.0), (0.9, 900.0), (1.0, 1_000.0)] {
            let found = histogram.quantile(quantile).expect("it has values");
            assert!((exact..exact * 1.045).contains(&found), "{quantile}: {found}");
        }
    }

    #[test]
    fn values_out_of_range_are_counted_at_the_ends() {
        let mut histogram = LogHistogram::default();
        for value in [0.0, -1.0, f64::NAN, f64::NEG_INFINITY, f64::INFINITY, f64::MAX] {
            histogram.record(value);
        }
        assert_eq!(histogram.count(), 6);
        assert_eq!(histogram.up_to(0), 4);
        assert_eq!(histogram.up_to(LAST), 6);
        assert_eq!(LogHistogram::default().quantile(0.5), None);
    }

    #[test]
    fn a_factor_moves_a_value_by_its_number_of_buckets() {
        assert_eq!(buckets_of_factor(2.0), 16);
        assert_eq!(buckets_of_factor(1.0), 0);
        assert_eq!(buckets_of_factor(0.5), 0);
        assert_eq!(buckets_of_factor(1.2), 5);
        assert_eq!(bucket(400.0), bucket(200.0) + 16);
    }

    proptest::proptest! {
        #[test]
        fn merging_is_recording_everything_in_one(
            left in proptest::collection::vec(0.0..1e7, 0..40),
            right in proptest::collection::vec(0.0..1e7, 0..40),
        ) {
            let of = |values: &[f64]| {
                let mut histogram = LogHistogram::default();
                values.iter().for_each(|value| histogram.record(*value));
                histogram
            };
            let mut merged = of(&left);
            merged.merge(&of(&right));
            proptest::prop_assert_eq!(merged, of(&[left, right].concat()));
        }
    }
}
