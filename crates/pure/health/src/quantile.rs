//! 99th percentile of the times of the last seconds.

use std::time::{Duration, Instant};

/// Length of one half of the window. A reading covers one to two halves.
const HALF: Duration = Duration::from_secs(5);

/// Shortest time that is distinguished; shorter ones count as this.
const MS_MIN: f64 = 0.1;

/// Growth of the buckets: each is wider than the one before by this factor. A percentile is the
/// middle of its bucket, so it is off by 2.5 % at most.
const GROWTH: f64 = 1.05;

/// Number of buckets, which reach from 0.1 ms to more than ten minutes.
const BUCKETS: usize = 322;

/// Number of samples for full trust in the percentile; with fewer, trust is in proportion.
const SAMPLES_FULL: f32 = 20.0;

/// Times of the last 5 to 10 s, in logarithmic buckets. One half is filled while both are read;
/// then the older one is emptied. Takes 2.6 kB, at any traffic.
#[derive(Clone, Debug)]
pub(crate) struct QuantileWindow {
    halves: [Half; 2],
    since: Instant,
}

#[derive(Clone, Debug)]
struct Half {
    /// Index of the half's stretch of time, counted from the start of the window.
    number: u64,
    // By hand: hdrhistogram of the same size is off by more below 2 ms, and its calls can fail.
    counts: Box<[u32; BUCKETS]>,
}

/// Samples of one or more windows, taken together.
#[derive(Clone, Debug)]
pub(crate) struct Samples([u64; BUCKETS]);

impl QuantileWindow {
    pub(crate) fn new(now: Instant) -> Self {
        let half = |number| Half { number, counts: Box::new([0; BUCKETS]) };
        // The second half waits for its first turn, so `record` finds it ready and empty.
        Self { halves: [half(0), half(1)], since: now }
    }

    pub(crate) fn record(&mut self, now: Instant, time: Duration) {
        let number = self.number(now);
        let half = &mut self.halves[(number % 2) as usize];
        if half.number != number {
            half.number = number;
            half.counts.fill(0);
        }
        let count = &mut half.counts[bucket_of(time)];
        *count = count.saturating_add(1);
    }

    /// Adds the recent samples at `now` to `samples`.
    pub(crate) fn add_to(&self, samples: &mut Samples, now: Instant) {
        let number = self.number(now);
        // No half with samples has a later number, because time does not go back in a fleet.
        for half in self.halves.iter().filter(|half| half.number + 1 >= number) {
            for (sum, count) in samples.0.iter_mut().zip(half.counts.iter()) {
                *sum += u64::from(*count);
            }
        }
    }

    fn number(&self, now: Instant) -> u64 {
        now.saturating_duration_since(self.since).as_secs() / HALF.as_secs()
    }
}

impl Samples {
    pub(crate) fn new() -> Self {
        Self([0; BUCKETS])
    }

    /// Returns the time in milliseconds that 99 of 100 samples don't exceed, and the trust in it, 0
    /// to 1; `None` without samples.
    pub(crate) fn p99_ms(&self) -> Option<(f32, f32)> {
        let total: u64 = self.0.iter().sum();
        let rank = total - total / 100;
        let mut below = 0;
        let bucket = self.0.iter().position(|count| {
            below += count;
            total > 0 && below >= rank
        })?;
        Some((middle_of(bucket), (total as f32 / SAMPLES_FULL).min(1.0)))
    }
}

fn bucket_of(time: Duration) -> usize {
    let ms = (time.as_secs_f64() * 1000.0).max(MS_MIN);
    let bucket = (ms / MS_MIN).ln() / GROWTH.ln();
    // Longer times share the last bucket.
    (bucket as usize).min(BUCKETS - 1)
}

fn middle_of(bucket: usize) -> f32 {
    (MS_MIN * GROWTH.powf(bucket as f64 + 0.5)) as f32
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::test_fleet::{ms, start};

    fn p99_at(window: &QuantileWindow, at_ms: u64) -> Option<(f32, f32)> {
        let mut samples = Samples::new();
        window.add_to(&mut samples, start() + ms(at_ms));
        samples.p99_ms()
    }

    fn window(samples_ms: &[(u64, u64)]) -> QuantileWindow {
        let mut window = QuantileWindow::new(start());
        for &(at_ms, sample_ms) in samples_ms {
            window.record(start() + ms(at_ms), ms(sample_ms));
        }
        window
    }

    #[test]
    fn one_in_a_hundred_may_be_slower() {
        let mut samples: Vec<_> = (0..99).map(|_| (0, 100)).collect();
        samples.push((0, 10_000));
        let (p99, trust) = p99_at(&window(&samples), 0).unwrap();
        assert!((97.0..103.0).contains(&p99), "{p99}");
        assert_eq!(trust, 1.0);
        samples.push((0, 10_000));
        let (p99, _) = p99_at(&window(&samples), 0).unwrap();
        assert!((9_700.0..10_300.0).contains(&p99), "{p99}");
    }

    #[test]
    fn samples_leave_after_five_to_ten_seconds() {
        let window = window(&[(4_999, 100)]);
        assert!(p99_at(&window, 9_999).is_some());
        assert_eq!(p99_at(&window, 10_000), None);
        assert_eq!(p99_at(&window, 1_000_000), None);
    }

    #[test]
    fn both_halves_are_read_and_the_older_is_thrown_away() {
        let mut window = window(&[(0, 100), (5_000, 200)]);
        assert!(p99_at(&window, 5_000).unwrap().0 > 190.0);
        window.record(start() + ms(10_000), ms(50));
        assert_eq!(p99_at(&window, 10_000).unwrap().1, 2.0 / SAMPLES_FULL);
        window.record(start() + ms(35_000), ms(50));
        assert!(p99_at(&window, 35_000).unwrap().0 < 52.0);
    }

    #[test]
    fn few_samples_are_trusted_little() {
        assert_eq!(p99_at(&window(&[(0, 100)]), 0).unwrap().1, 0.05);
        assert_eq!(p99_at(&window(&[]), 0), None);
    }

    #[test]
    fn windows_of_several_replicas_are_read_as_one() {
        let mut samples = Samples::new();
        let fast: Vec<_> = (0..98).map(|_| (0, 10)).collect();
        window(&fast).add_to(&mut samples, start());
        window(&[(0, 900), (0, 900)]).add_to(&mut samples, start());
        assert!(samples.p99_ms().unwrap().0 > 870.0);
    }

    proptest! {
        #[test]
        fn a_percentile_is_off_by_two_and_a_half_percent_at_most(micros in 100..600_000_000_u64) {
            let mut window = QuantileWindow::new(start());
            window.record(start(), Duration::from_micros(micros));
            let exact = micros as f32 / 1000.0;
            let (p99, _) = p99_at(&window, 0).unwrap();
            prop_assert!((p99 / exact - 1.0).abs() <= 0.0251, "{p99} {exact}");
        }

        #[test]
        fn any_time_has_a_bucket(nanos in any::<u64>(), seconds in any::<u64>()) {
            prop_assert!(bucket_of(Duration::from_nanos(nanos)) < BUCKETS);
            prop_assert!(bucket_of(Duration::from_secs(seconds)) < BUCKETS);
        }
    }
}
