//! Exponential backoff.

use std::time::{Duration, Instant};

/// Limits of a [`BackOff`], in milliseconds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BackOffLimits {
    /// First wait.
    pub(crate) first_ms: u64,
    /// Longest wait.
    pub(crate) max_ms: u64,
    /// Time without a failure after which earlier failures are forgotten.
    pub(crate) forget_ms: u64,
}

/// Exponential backoff: number of failures in a row, and the wait until the next try.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct BackOff {
    repeats: u32,
    /// Time of the last recovery; `None` while the thing fails.
    well_since: Option<Instant>,
}

impl BackOff {
    /// Returns the wait after a failure at `now`: twice the wait before, or the first wait again
    /// after a long time without failures.
    pub(crate) fn fail(&mut self, now: Instant, limits: BackOffLimits) -> Duration {
        let well_for = self.well_since.take().map(|since| now.saturating_duration_since(since));
        if well_for.is_some_and(|time| time >= Duration::from_millis(limits.forget_ms)) {
            self.repeats = 0;
        }
        // A shift by 64 or more fails, far beyond any limit.
        let doubled = 1_u64.checked_shl(self.repeats).unwrap_or(u64::MAX);
        self.repeats = self.repeats.saturating_add(1);
        Duration::from_millis(limits.first_ms.saturating_mul(doubled).min(limits.max_ms))
    }

    /// Records that the thing works again from `now` on.
    pub(crate) fn succeed(&mut self, now: Instant) {
        self.well_since = Some(now);
    }

    /// Returns the number of failures that are not forgotten yet.
    pub(crate) fn repeats(&self) -> u32 {
        self.repeats
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_fleet::{ms, start};

    const LIMITS: BackOffLimits = BackOffLimits { first_ms: 100, max_ms: 500, forget_ms: 1_000 };

    fn fail(back_off: &mut BackOff, at_ms: u64) -> u128 {
        back_off.fail(start() + ms(at_ms), LIMITS).as_millis()
    }

    #[test]
    fn it_doubles_up_to_its_limit() {
        let mut back_off = BackOff::default();
        let waits: Vec<u128> = (0..5).map(|n| fail(&mut back_off, n)).collect();
        assert_eq!(waits, [100, 200, 400, 500, 500]);
        for _ in 0..200 {
            assert_eq!(fail(&mut back_off, 0), 500, "no number of repeats overflows");
        }
    }

    #[test]
    fn a_short_success_is_no_excuse_and_a_long_one_is() {
        let mut back_off = BackOff::default();
        fail(&mut back_off, 0);
        back_off.succeed(start() + ms(100));
        assert_eq!(fail(&mut back_off, 1_099), 200);
        back_off.succeed(start() + ms(2_000));
        assert_eq!(fail(&mut back_off, 3_000), 100);
        assert_eq!(back_off.repeats(), 1);
    }

    #[test]
    fn failing_for_long_is_not_being_well_for_long() {
        let mut back_off = BackOff::default();
        back_off.succeed(start());
        fail(&mut back_off, 5_000);
        assert_eq!(fail(&mut back_off, 50_000), 200);
    }
}
