//! Durations in the unit that travels.

use std::time::{Duration, Instant};

/// Silence after which a node counts as started again whatever its incarnation: incarnations come from
/// its clock, which may have been set back. No datagram is under way for so long.
const FORGOTTEN_AFTER: Duration = Duration::from_secs(10);

/// Returns true if a node whose last datagram arrived at `at` may begin again with a lower
/// incarnation.
pub(crate) fn is_forgotten(at: Instant, now: Instant) -> bool {
    now.saturating_duration_since(at) > FORGOTTEN_AFTER
}

/// Returns whole milliseconds from `at` to `now`; 0 if `at` is later.
pub(crate) fn ms_since(at: Instant, now: Instant) -> u32 {
    u32::try_from(now.saturating_duration_since(at).as_millis()).unwrap_or(u32::MAX)
}

/// Returns a duration of `count` milliseconds.
pub(crate) fn ms(count: u32) -> Duration {
    Duration::from_millis(count.into())
}
