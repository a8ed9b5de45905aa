//! Delay that varies slowly.

use fastrand::Rng;

/// Largest deviation in standard deviations; larger ones are drawn again, so that delays are
/// bounded.
const DEVIATIONS_MAX: f64 = 3.0;

/// Normally distributed values at fixed points in time, with straight lines between them.
///
/// A new value for each packet would distort a link that keeps order: each late packet delays those
/// after it, and a dense flow ends up at the largest delay instead of the mean.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Jitter {
    from: f64,
    to: f64,
    from_ns: u64,
}

impl Jitter {
    /// Returns the value at `now_ns`, in standard deviations. `now_ns` must not go back.
    pub(crate) fn at(&mut self, now_ns: u64, period_ns: u64, rng: &mut Rng) -> f64 {
        let passed = now_ns.saturating_sub(self.from_ns) / period_ns;
        if passed >= 1 {
            // After one period the line goes on from its end; after several it starts again at
            // random.
            self.from = if passed == 1 { self.to } else { normal(rng) };
            self.to = normal(rng);
            self.from_ns += passed * period_ns;
        }
        let along = now_ns.saturating_sub(self.from_ns) as f64 / period_ns as f64;
        self.from + (self.to - self.from) * along
    }
}

/// Draws from the standard normal distribution, truncated on both sides.
fn normal(rng: &mut Rng) -> f64 {
    loop {
        // One minus: the logarithm of zero is infinite.
        let radius = (-2.0 * (1.0 - rng.f64()).ln()).sqrt();
        let value = radius * (std::f64::consts::TAU * rng.f64()).cos();
        if value.abs() <= DEVIATIONS_MAX {
            return value;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PERIOD_NS: u64 = 50_000_000;
    const STEP_NS: u64 = 100_000;

    #[test]
    fn neighbours_are_alike_and_the_whole_is_symmetric() {
        let mut rng = Rng::with_seed(7);
        let mut jitter = Jitter::default();
        let values: Vec<f64> =
            (0..1_000_000).map(|step| jitter.at(step * STEP_NS, PERIOD_NS, &mut rng)).collect();
        let steepest = 2.0 * DEVIATIONS_MAX * STEP_NS as f64 / PERIOD_NS as f64;
        for pair in values.windows(2) {
            assert!((pair[1] - pair[0]).abs() <= steepest * 1.001, "{pair:?}");
        }
        let mean = values.iter().sum::<f64>() / values.len() as f64;
        assert!(mean.abs() < 0.1, "{mean}");
        let beyond_one = values.iter().filter(|value| value.abs() > 1.0).count();
        assert!((150_000..350_000).contains(&beyond_one), "{beyond_one}");
    }

    #[test]
    fn a_pause_leaves_nothing_of_the_old_value() {
        let mut rng = Rng::with_seed(1);
        let mut jitter = Jitter { from: 3.0, to: 3.0, from_ns: 0 };
        let after: Vec<f64> =
            (1..200).map(|n| jitter.at(n * 10 * PERIOD_NS, PERIOD_NS, &mut rng)).collect();
        assert!(after[0] < 3.0);
        assert!(after.iter().any(|value| *value < 0.0));
    }
}
