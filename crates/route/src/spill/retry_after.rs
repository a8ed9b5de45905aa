//! When a client that was turned away should ask again.

/// Below it clients come back before anything has changed; the header knows whole seconds only.
const RETRY_AFTER_MIN_S: f32 = 1.0;

/// Above it the prediction is worth nothing, and capacity that comes back should be found.
const RETRY_AFTER_MAX_S: f32 = 60.0;

/// The predicted wait in whole seconds, 1 to 60, and somewhat more by chance: clients that are turned
/// away together must not come back together.
pub(super) fn retry_after_s(wait_ms: f32, rng: &mut fastrand::Rng) -> u32 {
    let wait_s = (wait_ms / 1_000.0).min(RETRY_AFTER_MAX_S);
    // Up to half as long again, but at least over a whole second: less would be rounded away.
    let spread_s = (wait_s / 2.0).max(1.0) * rng.f32();
    (wait_s + spread_s).ceil().clamp(RETRY_AFTER_MIN_S, RETRY_AFTER_MAX_S) as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(wait_ms: f32) -> Vec<u32> {
        let mut rng = fastrand::Rng::with_seed(5);
        let mut seconds: Vec<u32> = (0..1_000).map(|_| retry_after_s(wait_ms, &mut rng)).collect();
        seconds.sort_unstable();
        seconds.dedup();
        seconds
    }

    #[test]
    fn it_is_never_before_the_predicted_moment_and_never_the_same_for_all() {
        assert_eq!(all(0.0), [1]);
        assert_eq!(all(400.0), [1, 2]);
        assert_eq!(all(1_500.0), [2, 3]);
        assert_eq!(all(10_000.0), [11, 12, 13, 14, 15]);
    }

    #[test]
    fn it_stays_within_its_limits_whatever_is_predicted() {
        assert_eq!(all(59_500.0), [60]);
        assert_eq!(all(f32::INFINITY), [60]);
        assert_eq!(all(-1e9), [1]);
        // `f32::min` gives the other number, so that not knowing means the longest.
        assert_eq!(all(f32::NAN), [60]);
    }
}
