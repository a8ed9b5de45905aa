//! Random numbers with the distributions of requests.

use crate::Piece;

/// Zipf distribution over the numbers from 0: the probability of number `i` is in proportion to `1
/// / (i + 1)^exponent`.
#[derive(Debug)]
pub(super) struct Zipf {
    /// Cumulative weights up to and with each number.
    sums: Vec<f64>,
}

impl Zipf {
    pub(super) fn new(count: usize, exponent: f64) -> Self {
        let mut sum = 0.0;
        let sums = (1..=count).map(|rank| {
            sum += (rank as f64).powf(-exponent);
            sum
        });
        Self { sums: sums.collect() }
    }

    pub(super) fn draw(&self, rng: &mut fastrand::Rng) -> usize {
        let all = self.sums.last().copied().unwrap_or(0.0);
        let point = rng.f64() * all;
        // Rounding may put the point on the last sum.
        self.sums.partition_point(|&sum| sum <= point).min(self.sums.len().saturating_sub(1))
    }
}

/// Draws the time between two events of a Poisson process.
pub(super) fn exponential(rng: &mut fastrand::Rng, mean: f64) -> f64 {
    // The random number may be 0 and is never 1, so this avoids the logarithm of 0.
    -mean * (1.0 - rng.f64()).ln()
}

/// Draws a whole number with this mean that is mostly a little less and sometimes much more: the
/// sum of two exponential ones, between a tenth and four times the mean.
pub(super) fn length(rng: &mut fastrand::Rng, mean: u32) -> u32 {
    let half = f64::from(mean) / 2.0;
    let drawn = exponential(rng, half) + exponential(rng, half);
    drawn.clamp(f64::from(mean) / 10.0, f64::from(mean) * 4.0).max(1.0) as u32
}

/// Draws a text of this mean length that occurs nowhere else.
pub(super) fn new_text(rng: &mut fastrand::Rng, mean_tokens: u32) -> Piece {
    Piece { id: rng.u64(..), tokens: length(rng, mean_tokens) }
}

/// Returns the moments of a Poisson process's events in seconds, in ascending order.
pub(super) fn arrivals(
    rng: &mut fastrand::Rng,
    rate_per_s: f64,
    seconds: f64,
) -> impl Iterator<Item = f64> {
    let mut at = 0.0;
    std::iter::from_fn(move || {
        at += exponential(rng, 1.0 / rate_per_s.max(1e-9));
        (at < seconds).then_some(at)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_fall_with_the_rank() {
        let zipf = Zipf::new(4, 1.0);
        let mut rng = fastrand::Rng::with_seed(1);
        let mut counts = [0_u32; 4];
        (0..25_000).for_each(|_| counts[zipf.draw(&mut rng)] += 1);
        for (count, expected) in counts.iter().zip([12_000, 6_000, 4_000, 3_000]) {
            assert!(count.abs_diff(expected) < 300, "{counts:?}");
        }
    }

    #[test]
    fn means_are_as_asked_for() {
        let mut rng = fastrand::Rng::with_seed(1);
        let mean = (0..20_000).map(|_| f64::from(length(&mut rng, 500))).sum::<f64>() / 20_000.0;
        assert!((mean - 500.0).abs() < 15.0, "{mean}");
        let count = arrivals(&mut rng, 5.0, 1_000.0).count();
        assert!(count.abs_diff(5_000) < 250, "{count}");
    }
}
