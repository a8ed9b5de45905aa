//! Arithmetic on time that can't overflow, and trust that fades with age.

use std::time::{Duration, Instant};

/// Time that is longer than any wait and can be added to the present of any clock.
const LONGEST: Duration = Duration::from_secs(10 * 365 * 24 * 3600);

/// Trust below which a reading counts as unknown.
const TRUST_MIN: f32 = 0.01;

/// Returns the moment `duration` after `now`; at most ten years after, which means "never".
pub(crate) fn later(now: Instant, duration: Duration) -> Instant {
    now.checked_add(duration.min(LONGEST)).unwrap_or(now)
}

/// Returns the moment `milliseconds` after `now`, as [`later`] does.
pub(crate) fn later_ms(now: Instant, milliseconds: u64) -> Instant {
    later(now, Duration::from_millis(milliseconds))
}

/// Adds jitter: returns `duration` and up to a tenth more, so that many waits don't end at the same
/// moment.
pub(crate) fn jittered(duration: Duration, rng: &mut fastrand::Rng) -> Duration {
    duration.saturating_add(duration.min(LONGEST).mul_f64(rng.f64() / 10.0))
}

/// Returns the trust in a number of `age`: 1 until `full_for`, then halved with every `half_life`.
pub(crate) fn trust(age: Duration, full_for: Duration, half_life: Duration) -> f32 {
    let over = age.saturating_sub(full_for);
    if over.is_zero() {
        return 1.0;
    }
    // Without a half-life, trust ends at once.
    if half_life.is_zero() {
        return 0.0;
    }
    let trust = 0.5_f64.powf(over.as_secs_f64() / half_life.as_secs_f64()) as f32;
    if trust < TRUST_MIN { 0.0 } else { trust }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_fleet::{ms, start};

    #[test]
    fn trust_is_full_then_halves_and_ends() {
        let of = |age| trust(ms(age), ms(100), ms(50));
        assert_eq!([of(0), of(100), of(150), of(200)], [1.0, 1.0, 0.5, 0.25]);
        assert_eq!(of(100 + 50 * 7), 0.0, "below one percent nothing is known");
        assert!(of(100 + 50 * 6) > 0.0);
    }

    #[test]
    fn without_a_half_life_trust_ends_at_once() {
        assert_eq!(trust(ms(101), ms(100), Duration::ZERO), 0.0);
        assert_eq!(trust(ms(100), ms(100), Duration::ZERO), 1.0);
    }

    #[test]
    fn the_longest_wait_is_a_moment() {
        assert!(later(start(), Duration::MAX) > later(start(), ms(1)));
        assert_eq!(later_ms(start(), u64::MAX), later(start(), Duration::MAX));
    }

    #[test]
    fn jitter_adds_at_most_a_tenth_and_differs() {
        let mut rng = fastrand::Rng::with_seed(1);
        let drawn: Vec<Duration> = (0..50).map(|_| jittered(ms(1000), &mut rng)).collect();
        assert!(drawn.iter().all(|drawn| (ms(1000)..=ms(1100)).contains(drawn)));
        assert!(drawn.windows(2).any(|pair| pair[0] != pair[1]));
        assert!(jittered(Duration::MAX, &mut rng) == Duration::MAX);
    }
}
