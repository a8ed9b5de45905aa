//! Mean among the candidates of a group: the stand-in for unknown values of one.

use spillway_types::Reading;

/// Mean of readings, weighted by their trust.
///
/// So a reading that ages slowly gives way to the others, as in [`Reading::or`].
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Mean {
    sum: f64,
    trust: f64,
}

impl Mean {
    /// Adds a reading.
    pub(crate) fn add(&mut self, reading: Reading) {
        let trust = f64::from(reading.trust.clamp(0.0, 1.0));
        self.sum += f64::from(reading.value) * trust;
        self.trust += trust;
    }

    /// Returns the mean, or `unknown` if no reading is known. The choice of that number does not
    /// change a comparison as long as all candidates are compared by one number.
    pub(crate) fn or(self, unknown: f32) -> f32 {
        if self.trust > 0.0 { (self.sum / self.trust) as f32 } else { unknown }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn it_lies_among_the_known_readings(
            readings in prop::collection::vec((0.0..1e6_f32, 0.0..=1.0_f32), 0..20),
        ) {
            let mut mean = Mean::default();
            let readings = readings.into_iter().map(|(value, trust)| Reading { value, trust });
            let known: Vec<_> = readings.filter(|reading| reading.is_known()).collect();
            known.iter().for_each(|&reading| mean.add(reading));
            mean.add(Reading::UNKNOWN);
            let lowest = known.iter().map(|reading| reading.value).fold(f32::INFINITY, f32::min);
            let highest = known.iter().map(|reading| reading.value).fold(0.0, f32::max);
            let expected = if known.is_empty() { 7.0..=7.0 } else { lowest..=highest };
            let slack = highest * 1e-6;
            let range = expected.start() - slack..=expected.end() + slack;
            prop_assert!(range.contains(&mean.or(7.0)), "{} is not in {range:?}", mean.or(7.0));
        }
    }

    #[test]
    fn an_aged_reading_counts_less() {
        let mut mean = Mean::default();
        mean.add(Reading { value: 10.0, trust: 1.0 });
        mean.add(Reading { value: 40.0, trust: 0.5 });
        assert_eq!(mean.or(0.0), 20.0);
    }
}
