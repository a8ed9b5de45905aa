//! Retry-After of a client whose request was refused.

/// Answer to a client whose request is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RetryAfter {
    /// Seconds after which the client should retry, 1 to 60.
    pub seconds: u32,
    /// True if a slot is booked for that moment.
    pub is_promised: bool,
}

impl RetryAfter {
    /// Returns an answer that rests on a predicted wait alone.
    pub(crate) fn unpromised(wait_ms: f32, rng: &mut fastrand::Rng) -> Self {
        Self { seconds: retry_after_s(wait_ms, rng), is_promised: false }
    }
}

/// Shortest answer: sooner nothing has changed, and the header knows whole seconds only.
const RETRY_AFTER_MIN_S: f32 = 1.0;

/// Longest answer: a prediction beyond it is worthless, and clients should find new capacity.
const RETRY_AFTER_MAX_S: f32 = 60.0;

/// Least part of the longest answer that clients get when the predicted wait is longer: the rest is
/// jitter, so that clients refused together don't come back together.
const LONGEST_SHARE_MIN: f32 = 0.8;

/// Returns the predicted wait in whole seconds, 1 to 60, with random jitter: clients refused
/// together must not come back together.
#[must_use]
pub fn retry_after_s(wait_ms: f32, rng: &mut fastrand::Rng) -> u32 {
    let wait_s = (wait_ms / 1_000.0).min(RETRY_AFTER_MAX_S);
    // Here the jitter shortens the time, since no answer may be longer.
    if wait_s >= RETRY_AFTER_MAX_S {
        let share = LONGEST_SHARE_MIN + (1.0 - LONGEST_SHARE_MIN) * rng.f32();
        return (RETRY_AFTER_MAX_S * share).ceil() as u32;
    }
    // Up to half as long again as jitter, but at least a whole second: less would be rounded away.
    let spread_s = (wait_s / 2.0).max(1.0) * rng.f32();
    (wait_s + spread_s).ceil().clamp(RETRY_AFTER_MIN_S, RETRY_AFTER_MAX_S) as u32
}

/// Returns a whole second soon after a slot comes free: the next one or, by chance, the one after
/// it. Slots come free one after the other, so no more jitter is needed.
///
/// `None` if that is later than the longest answer by more than `spare_s`, the time that a client
/// which comes too early can wait.
pub(crate) fn promised_s(wait_s: f32, spare_s: f32, rng: &mut fastrand::Rng) -> Option<u32> {
    let seconds = (wait_s + rng.f32()).ceil().clamp(RETRY_AFTER_MIN_S, RETRY_AFTER_MAX_S);
    (wait_s <= RETRY_AFTER_MAX_S + spare_s).then_some(seconds as u32)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(wait_ms: f32) -> Vec<u32> {
        let mut rng = fastrand::Rng::with_seed(5);
        distinct(|| retry_after_s(wait_ms, &mut rng))
    }

    fn distinct<T: Ord>(mut draw: impl FnMut() -> T) -> Vec<T> {
        let mut drawn: Vec<T> = (0..1_000).map(|_| draw()).collect();
        drawn.sort_unstable();
        drawn.dedup();
        drawn
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
        let longest: Vec<u32> = (49..=60).collect();
        assert_eq!(all(59_500.0), [60]);
        assert_eq!(all(f32::INFINITY), longest);
        assert_eq!(all(-1e9), [1]);
        // `f32::min` returns the other number, so that an unknown wait means the longest time.
        assert_eq!(all(f32::NAN), longest);
    }

    #[test]
    fn a_promised_moment_is_one_of_the_two_next_whole_seconds() {
        let mut rng = fastrand::Rng::with_seed(5);
        let mut drawn = |wait_s: f32| distinct(|| promised_s(wait_s, 2.0, &mut rng));
        assert_eq!(drawn(0.001), [Some(1), Some(2)]);
        assert_eq!(drawn(3.4), [Some(4), Some(5)]);
        assert_eq!(drawn(59.5), [Some(60)]);
        assert_eq!(drawn(62.0), [Some(60)]);
        assert_eq!(drawn(62.5), [None]);
        assert_eq!(drawn(f32::INFINITY), [None]);
    }
}
