//! Pauses with jitter, so that tasks do not all act at the same moment.

use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher};
use std::time::Duration;

/// Returns `base`, changed by up to `share` of it in either direction, drawn evenly.
pub(crate) fn jittered(base: Duration, share: f64, rng: &mut fastrand::Rng) -> Duration {
    let share = share.clamp(0.0, 1.0);
    base.mul_f64(1.0 - share + 2.0 * share * rng.f64())
}

/// Returns a random source that depends on the seed and on `name`.
pub(crate) fn rng(seed: u64, name: &str) -> fastrand::Rng {
    // A hasher without random keys, so that an equal seed gives equal pauses.
    let hashed = BuildHasherDefault::<DefaultHasher>::default().hash_one(name);
    fastrand::Rng::with_seed(seed ^ hashed)
}

/// Exponential backoff: each pause is twice as long as the last, up to a limit, and then drawn
/// between half of that and all of it.
#[derive(Clone, Debug)]
pub(crate) struct Backoff {
    first: Duration,
    max: Duration,
    failures: u32,
}

impl Backoff {
    pub(crate) fn new(first: Duration, max: Duration) -> Self {
        Self { first, max, failures: 0 }
    }

    /// Returns the pause after one more failure, never longer than the limit.
    pub(crate) fn next(&mut self, rng: &mut fastrand::Rng) -> Duration {
        // 2^16 times the first pause exceeds every sensible limit.
        let doubled = self.first.saturating_mul(1 << self.failures.min(16));
        self.failures = self.failures.saturating_add(1);
        doubled.min(self.max).mul_f64(0.5 + 0.5 * rng.f64())
    }

    /// Forgets the failures after a success: the next failure is a first one.
    pub(crate) fn reset(&mut self) {
        self.failures = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jitter_stays_within_its_share_and_uses_it() {
        let mut rng = fastrand::Rng::with_seed(1);
        let base = Duration::from_secs(10);
        let drawn: Vec<f64> =
            (0..1000).map(|_| jittered(base, 0.2, &mut rng).as_secs_f64()).collect();
        assert!(drawn.iter().all(|s| (8.0..=12.0).contains(s)));
        assert!(drawn.iter().any(|s| *s < 8.5) && drawn.iter().any(|s| *s > 11.5));
        assert_eq!(jittered(base, 0.0, &mut rng), base);
    }

    #[test]
    fn names_have_random_sources_of_their_own_that_come_back_with_the_seed() {
        assert_eq!(rng(1, "a").u64(..), rng(1, "a").u64(..));
        assert_ne!(rng(1, "a").u64(..), rng(1, "b").u64(..));
        assert_ne!(rng(1, "a").u64(..), rng(2, "a").u64(..));
    }

    #[test]
    fn backoff_doubles_to_its_limit_and_starts_anew_after_success() {
        let mut rng = fastrand::Rng::with_seed(1);
        let (first, max) = (Duration::from_millis(100), Duration::from_secs(5));
        let mut backoff = Backoff::new(first, max);
        for power in 0..100 {
            let full = first.saturating_mul(1 << power.min(20)).min(max);
            let pause = backoff.next(&mut rng);
            assert!(pause <= full && pause >= full / 2, "{power}: {pause:?} of {full:?}");
        }
        backoff.reset();
        assert!(backoff.next(&mut rng) <= first);
    }
}
