//! Deadlines of requests.

use std::time::{Duration, Instant};

/// A moment on this machine's monotonic clock after which an answer is useless.
///
/// Between machines only the remaining duration travels, never the moment: two clocks are not
/// comparable.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Deadline(Instant);

impl Deadline {
    /// Returns the deadline `budget` after `now`.
    #[must_use]
    pub fn after(now: Instant, budget: Duration) -> Self {
        Self(now + budget)
    }

    /// Returns the moment on the monotonic clock.
    #[must_use]
    pub fn at(self) -> Instant {
        self.0
    }

    /// Returns the time left at `now`; zero once the deadline has passed.
    #[must_use]
    pub fn remaining(self, now: Instant) -> Duration {
        self.0.saturating_duration_since(now)
    }

    /// Returns true if the deadline has passed at `now`.
    #[must_use]
    pub fn has_passed(self, now: Instant) -> bool {
        now >= self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[expect(clippy::disallowed_methods, reason = "a test needs some starting moment")]
    fn remaining_counts_down_to_zero_and_stays_there() {
        let start = Instant::now();
        let deadline = Deadline::after(start, Duration::from_secs(2));
        assert_eq!(deadline.remaining(start), Duration::from_secs(2));
        assert_eq!(deadline.remaining(start + Duration::from_secs(3)), Duration::ZERO);
        assert!(!deadline.has_passed(start));
        assert!(deadline.has_passed(start + Duration::from_secs(2)));
    }
}
