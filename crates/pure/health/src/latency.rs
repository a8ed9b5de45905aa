//! Average of latencies that follows peaks at once (peak EWMA).

use std::time::{Duration, Instant};

use spillway_types::Reading;

use crate::time::trust;

/// Time in which a peak is forgotten by 63 %, as long as samples come.
const DECAY: Duration = Duration::from_secs(10);

/// Time without samples in which the trust in the average halves.
const TRUST_HALF_LIFE: Duration = Duration::from_secs(30);

/// Peak EWMA of a replica's time to first byte.
///
/// A sample above the average replaces it, so that a replica that slows down is avoided after one
/// reply. Samples below pull the average down with the time constant of its decay, however many
/// there are.
#[derive(Clone, Copy, Debug, Default)]
pub struct PeakEwma(Option<LatencyAverage>);

#[derive(Clone, Copy, Debug)]
struct LatencyAverage {
    ms: f64,
    at: Instant,
}

impl PeakEwma {
    /// Adds the time to first byte of a reply that began at `now`.
    pub fn record(&mut self, now: Instant, time: Duration) {
        let sample = time.as_secs_f64() * 1000.0;
        let kept = self.0.map_or(sample, |average| {
            let age = now.saturating_duration_since(average.at);
            let keep = (-age.as_secs_f64() / DECAY.as_secs_f64()).exp();
            sample.max(sample + (average.ms - sample) * keep)
        });
        self.0 = Some(LatencyAverage { ms: kept, at: now });
    }

    /// Returns the average in milliseconds. Its trust fades with the age of the newest sample.
    #[must_use]
    pub fn reading(&self, now: Instant) -> Reading {
        self.0.map_or(Reading::UNKNOWN, |average| {
            let age = now.saturating_duration_since(average.at);
            Reading { value: average.ms as f32, trust: trust(age, Duration::ZERO, TRUST_HALF_LIFE) }
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::test_fleet::{ms, start};

    #[test]
    fn it_jumps_to_a_peak_and_decays_towards_later_samples() {
        let mut ewma = PeakEwma::default();
        ewma.record(start(), ms(100));
        ewma.record(start() + ms(1), ms(1_100));
        assert_eq!(ewma.reading(start() + ms(1)).value, 1_100.0);
        for tick in 1..=100 {
            ewma.record(start() + ms(1 + tick * 100), ms(100));
        }
        let value = ewma.reading(start() + ms(10_001)).value;
        assert!((value - (100.0 + 1_000.0 * 0.3679)).abs() < 1.0, "{value}");
    }

    #[test]
    fn how_many_samples_come_does_not_matter_only_how_long_it_takes() {
        let after = |every_ms: u64| {
            let mut ewma = PeakEwma::default();
            ewma.record(start(), ms(1_000));
            (1..=5_000 / every_ms)
                .for_each(|n| ewma.record(start() + ms(n * every_ms), Duration::ZERO));
            ewma.reading(start() + ms(5_000)).value
        };
        assert!((after(1) - after(1_000)).abs() < 0.1, "{} {}", after(1), after(1_000));
    }

    #[test]
    fn trust_fades_with_the_age_of_the_newest_sample() {
        let mut ewma = PeakEwma::default();
        assert_eq!(ewma.reading(start()), Reading::UNKNOWN);
        ewma.record(start(), ms(100));
        let trust = |after_ms| ewma.reading(start() + ms(after_ms)).trust;
        assert_eq!([trust(0), trust(30_000), trust(60_000)], [1.0, 0.5, 0.25]);
        assert_eq!(trust(300_000), 0.0);
    }

    proptest! {
        #[test]
        fn it_lies_between_the_newest_sample_and_the_highest(
            samples in prop::collection::vec((0..60_000_u64, 0..1_000_000_u64), 1..50),
        ) {
            let (mut ewma, mut now) = (PeakEwma::default(), start());
            let highest = samples.iter().map(|(_, sample)| *sample).max().unwrap();
            for (wait, sample) in samples {
                now += ms(wait);
                ewma.record(now, ms(sample));
                let value = ewma.reading(now).value;
                prop_assert!(value >= sample as f32 && value <= highest as f32);
            }
        }
    }
}
