//! Histogram of the times between the events of one stream. Each stream counts in its own, so that
//! a token costs no write to shared memory.

use std::time::Duration;

/// Upper bounds of the buckets in seconds; one more bucket counts all longer gaps.
pub const GAP_BOUNDS_S: [f64; 12] =
    [0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 5.0, 30.0];

/// Histogram of gaps with the fixed bounds [`GAP_BOUNDS_S`].
#[derive(Clone, Debug, Default, PartialEq)]
pub struct GapHistogram {
    counts: [u64; GAP_BOUNDS_S.len() + 1],
    sum: Duration,
}

impl GapHistogram {
    /// Counts one gap.
    pub fn record(&mut self, gap: Duration) {
        let seconds = gap.as_secs_f64();
        let bucket = GAP_BOUNDS_S.iter().position(|bound| seconds <= *bound);
        // The last bucket has no upper bound.
        self.counts[bucket.unwrap_or(GAP_BOUNDS_S.len())] += 1;
        self.sum += gap;
    }

    /// Adds another histogram's counts to this one.
    pub fn merge(&mut self, other: &Self) {
        for (mine, theirs) in self.counts.iter_mut().zip(other.counts) {
            *mine += theirs;
        }
        self.sum += other.sum;
    }

    /// Returns `(upper bound in seconds, count)` of each bucket; the last bound is infinite.
    pub fn buckets(&self) -> impl Iterator<Item = (f64, u64)> + '_ {
        GAP_BOUNDS_S.into_iter().chain([f64::INFINITY]).zip(self.counts)
    }

    /// Returns the number of gaps.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// Returns the sum of all gaps.
    #[must_use]
    pub fn sum(&self) -> Duration {
        self.sum
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gap_counts_in_the_first_bucket_that_holds_it() {
        let mut gaps = GapHistogram::default();
        gaps.record(Duration::from_millis(1));
        gaps.record(Duration::from_micros(1_001));
        gaps.record(Duration::from_secs(31));
        let counts: Vec<u64> = gaps.buckets().map(|(_, count)| count).collect();
        assert_eq!(counts[0], 1);
        assert_eq!(counts[1], 1);
        assert_eq!(counts[GAP_BOUNDS_S.len()], 1);
        assert_eq!(gaps.count(), 3);
    }

    #[test]
    fn merging_adds_counts_and_sums() {
        let mut a = GapHistogram::default();
        a.record(Duration::from_millis(10));
        let mut b = a.clone();
        b.merge(&a);
        assert_eq!(b.count(), 2);
        assert_eq!(b.sum(), Duration::from_millis(20));
    }
}
