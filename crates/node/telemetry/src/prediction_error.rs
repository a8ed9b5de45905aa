//! Errors of latency predictions.

/// Buckets of a sketch. With [`GROWTH`] their bounds reach a billion times the smallest one.
const BUCKETS: usize = 96;
/// Ratio of a bucket's bound to the one before: a quantile is off by an eighth at most.
const GROWTH: f32 = 1.25;
/// Bound of the first bucket, in milliseconds or in thousandths of the seen time: less is no error.
const SMALLEST: f32 = 1.0;

/// Distributions of the errors of past predictions.
///
/// The size is 768 bytes. Quantiles are exact to 12 %.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PredictionError {
    absolute: Sketch,
    relative: Sketch,
}

/// Histogram with logarithmic buckets.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Sketch {
    counts: [u32; BUCKETS],
}

impl Default for PredictionError {
    fn default() -> Self {
        Self { absolute: Sketch::EMPTY, relative: Sketch::EMPTY }
    }
}

impl PredictionError {
    /// Adds a prediction and the time that was seen, in milliseconds. Ignores values that are not
    /// finite.
    pub(crate) fn note(&mut self, predicted_ms: f32, seen_ms: f32) {
        let error_ms = (predicted_ms - seen_ms).abs();
        if !error_ms.is_finite() || seen_ms < 0.0 {
            return;
        }
        self.absolute.add(error_ms);
        // A time below a millisecond counts as one, so that the relative error stays finite.
        self.relative.add(1_000.0 * error_ms / seen_ms.max(1.0));
    }

    /// Halves all counts. A regular call lets the newest predictions count most.
    pub(crate) fn halve(&mut self) {
        self.absolute.halve();
        self.relative.halve();
    }

    /// Returns the number of predictions that count.
    #[must_use]
    pub(crate) fn count(&self) -> u64 {
        self.absolute.count()
    }

    /// Returns the absolute error in milliseconds that this share of predictions, 0 to 1, stays
    /// within; `None` if there are none.
    #[must_use]
    pub(crate) fn absolute_ms(&self, share: f64) -> Option<f32> {
        self.absolute.quantile(share)
    }

    /// Returns the relative error that this share of predictions, 0 to 1, stays within: 0.1 is a
    /// tenth of the seen time. `None` if there are none.
    #[must_use]
    pub(crate) fn relative(&self, share: f64) -> Option<f32> {
        self.relative.quantile(share).map(|permille| permille / 1_000.0)
    }
}

impl Sketch {
    const EMPTY: Self = Self { counts: [0; BUCKETS] };

    fn add(&mut self, value: f32) {
        let bucket = if value <= SMALLEST { 0.0 } else { (value / SMALLEST).log(GROWTH).ceil() };
        let count = &mut self.counts[(bucket as usize).min(BUCKETS - 1)];
        *count = count.saturating_add(1);
    }

    fn halve(&mut self) {
        for count in &mut self.counts {
            *count /= 2;
        }
    }

    fn count(&self) -> u64 {
        self.counts.iter().map(|&count| u64::from(count)).sum()
    }

    fn quantile(&self, share: f64) -> Option<f32> {
        let count = self.count();
        let rank = ((count as f64 * share.clamp(0.0, 1.0)).ceil() as u64).max(1);
        let mut so_far = 0;
        let bucket = self.counts.iter().position(|&count| {
            so_far += u64::from(count);
            so_far >= rank
        })?;
        // The logarithmic middle of the bucket; the first bucket holds what is no error.
        Some(if bucket == 0 { 0.0 } else { SMALLEST * GROWTH.powf(bucket as f32 - 0.5) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_those_of_what_was_noted() {
        let mut error = PredictionError::default();
        assert_eq!(error.absolute_ms(0.5), None);
        for off in 1..=1_000 {
            error.note(1_000.0 + off as f32, 1_000.0);
        }
        let near = |seen: Option<f32>, expected: f32| {
            let seen = seen.unwrap();
            assert!((seen / expected - 1.0).abs() < 0.13, "{seen} instead of {expected}");
        };
        assert_eq!(error.count(), 1_000);
        near(error.absolute_ms(0.5), 500.0);
        near(error.absolute_ms(0.9), 900.0);
        near(error.relative(0.5), 0.5);
        near(error.relative(0.9), 0.9);
    }

    #[test]
    fn a_prediction_that_came_true_has_no_error() {
        let mut error = PredictionError::default();
        error.note(80.0, 80.0);
        error.note(0.0, 0.0);
        assert_eq!((error.absolute_ms(1.0), error.relative(1.0)), (Some(0.0), Some(0.0)));
    }

    #[test]
    fn what_is_no_number_is_passed_over() {
        let mut error = PredictionError::default();
        for (predicted, seen) in [(f32::NAN, 1.0), (1.0, f32::INFINITY), (1.0, -1.0)] {
            error.note(predicted, seen);
        }
        assert_eq!(error.count(), 0);
        error.note(1e30, 1.0);
        assert!(error.absolute_ms(0.5).unwrap().is_finite());
    }

    #[test]
    fn an_error_has_no_sign_and_is_relative_to_what_was_seen() {
        for (predicted, seen, absolute, relative) in [
            (150.0, 100.0, 50.0, 0.5),
            (50.0, 100.0, 50.0, 0.5),
            (0.0, 100.0, 100.0, 1.0),
            (-100.0, 100.0, 200.0, 2.0),
            (1_100.0, 100.0, 1_000.0, 10.0),
            // A reply within a millisecond counts as one of a millisecond.
            (10.0, 0.0, 10.0, 10.0),
            (10.5, 0.5, 10.0, 10.0),
        ] {
            let mut error = PredictionError::default();
            error.note(predicted, seen);
            let is_near = |found: Option<f32>, expected: f32| {
                found.is_some_and(|found| (found / expected - 1.0).abs() < 0.13)
            };
            assert!(is_near(error.absolute_ms(0.5), absolute), "{predicted} for {seen}: {error:?}");
            assert!(is_near(error.relative(0.5), relative), "{predicted} for {seen}: {error:?}");
        }
    }

    #[test]
    fn any_share_has_a_quantile_and_larger_shares_no_smaller_ones() {
        let mut error = PredictionError::default();
        for share in [0.0, 0.5, 1.0] {
            assert_eq!((error.absolute_ms(share), error.relative(share)), (None, None));
        }
        for off in [0.0, 3.0, 40.0, 500.0, 1e9, 1e20] {
            error.note(1.0 + off, 1.0);
        }
        let shares = [f64::NEG_INFINITY, -1.0, 0.0, 0.1, 0.3, 0.5, 0.7, 0.9, 1.0, 2.0];
        let found = shares.map(|share| error.absolute_ms(share).unwrap());
        assert!(found.is_sorted(), "{found:?}");
        assert_eq!(found[..4], [0.0; 4], "the least error");
        assert_eq!(found[8], found[9], "a share above all is all");
        assert!(found[9].is_finite() && found[9] > 1e8, "{found:?}");
    }

    #[test]
    fn one_error_in_ten_moves_the_ninth_decile_and_not_the_median() {
        let mut error = PredictionError::default();
        (0..89).for_each(|_| error.note(100.0, 100.0));
        (0..11).for_each(|_| error.note(10_100.0, 100.0));
        assert_eq!(error.absolute_ms(0.5), Some(0.0));
        assert_eq!(error.absolute_ms(0.89), Some(0.0));
        assert!(error.absolute_ms(0.9).is_some_and(|ms| ms > 8_000.0));
    }

    #[test]
    fn what_is_halved_gives_way_to_what_comes_after() {
        let mut error = PredictionError::default();
        (0..100).for_each(|_| error.note(1_100.0, 1_000.0));
        (0..8).for_each(|_| error.halve());
        assert_eq!(error.count(), 0);
    }
}
