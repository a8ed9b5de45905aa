//! Durations in the unit that travels.

use std::time::{Duration, Instant};

/// Returns whole milliseconds from `at` to `now`; 0 if `at` is later.
pub(crate) fn ms_since(at: Instant, now: Instant) -> u32 {
    u32::try_from(now.saturating_duration_since(at).as_millis()).unwrap_or(u32::MAX)
}

/// Returns a duration of `count` milliseconds.
pub(crate) fn ms(count: u32) -> Duration {
    Duration::from_millis(count.into())
}
