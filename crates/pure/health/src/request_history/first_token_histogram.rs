//! Histogram of times to first token, for percentiles of some seconds.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// Buckets: two an octave from 1 ms to more than four minutes, so that a percentile is at most a
/// fifth off.
const BUCKETS: usize = 37;
const PER_OCTAVE: f64 = 2.0;

/// Counts of times by size. The first bucket ends at 1 ms, the last has no end.
///
/// It is sent as pairs of bucket and count, since few buckets of some seconds are in use.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "Vec<(usize, u32)>", into = "Vec<(usize, u32)>")]
pub(super) struct FirstTokenHistogram([u32; BUCKETS]);

impl Default for FirstTokenHistogram {
    fn default() -> Self {
        Self([0; BUCKETS])
    }
}

impl FirstTokenHistogram {
    pub(super) fn record(&mut self, time: Duration) {
        let octaves = (time.as_secs_f64() * 1e3).max(1.0).log2();
        let bucket = (octaves * PER_OCTAVE).ceil() as usize;
        let count = &mut self.0[bucket.min(BUCKETS - 1)];
        *count = count.saturating_add(1);
    }

    pub(super) fn add(&mut self, other: &Self) {
        for (count, more) in self.0.iter_mut().zip(other.0) {
            *count = count.saturating_add(more);
        }
    }

    /// Returns the time in milliseconds below which this share of the times is; `None` without any.
    pub(super) fn quantile_ms(&self, share: f64) -> Option<f64> {
        let all: u64 = self.0.iter().map(|count| u64::from(*count)).sum();
        if all == 0 {
            return None;
        }
        let rank = share * all as f64;
        let mut below = 0.0;
        for (bucket, count) in self.0.iter().enumerate().filter(|(_, count)| **count > 0) {
            let count = f64::from(*count);
            if below + count >= rank {
                // Within a bucket times are taken as evenly spread.
                let part = ((rank - below) / count).clamp(0.0, 1.0);
                return Some(((bucket as f64 - 1.0 + part) / PER_OCTAVE).exp2());
            }
            below += count;
        }
        None
    }
}

impl From<Vec<(usize, u32)>> for FirstTokenHistogram {
    fn from(pairs: Vec<(usize, u32)>) -> Self {
        let mut histogram = Self::default();
        for (bucket, more) in pairs {
            let count = &mut histogram.0[bucket.min(BUCKETS - 1)];
            *count = count.saturating_add(more);
        }
        histogram
    }
}

impl From<FirstTokenHistogram> for Vec<(usize, u32)> {
    fn from(histogram: FirstTokenHistogram) -> Self {
        histogram.0.into_iter().enumerate().filter(|(_, count)| *count > 0).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_at_most_a_fifth_off() {
        let mut times = FirstTokenHistogram::default();
        assert_eq!(times.quantile_ms(0.5), None);
        for ms in 1..=1_000 {
            times.record(Duration::from_millis(ms));
        }
        for share in [0.1, 0.5, 0.95, 1.0] {
            let found = times.quantile_ms(share).unwrap();
            assert!((found / (share * 1_000.0) - 1.0).abs() < 0.2, "{share}: {found}");
        }
    }

    #[test]
    fn the_shortest_and_the_longest_times_count() {
        let mut times = FirstTokenHistogram::default();
        times.record(Duration::ZERO);
        assert!(times.quantile_ms(0.5).unwrap() <= 1.0);
        times.record(Duration::from_secs(86_400));
        assert!(times.quantile_ms(0.99).unwrap() > 200_000.0);
    }
}
