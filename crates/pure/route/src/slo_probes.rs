//! Probe requests that are served although a too late reply is predicted.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Rate limit of probes: one request in [`SloProbes::PERIOD`]. The period begins with the first
/// refusal. No call locks.
#[derive(Debug, Default)]
pub struct SloProbes {
    /// Moment of the first refusal.
    since: OnceLock<Instant>,
    /// Time of the last probe or the first refusal, in milliseconds after `since`; 0 before both.
    last_ms: AtomicU64,
}

impl SloProbes {
    /// Interval of probes: a prediction that is never tried again would stay wrong for ever.
    pub const PERIOD: Duration = Duration::from_secs(10);

    /// Returns true if the request that is here `now` may be a probe. Of several at a time one may.
    #[must_use]
    pub fn pass(&self, now: Instant) -> bool {
        let since = *self.since.get_or_init(|| now);
        let passed_ms = now.saturating_duration_since(since).as_millis();
        // At least 1, since 0 means that no request was refused yet.
        let now_ms = u64::try_from(passed_ms).unwrap_or(u64::MAX).saturating_add(1);
        let last_ms = self.last_ms.load(Ordering::Relaxed);
        let period_ms = Self::PERIOD.as_secs() * 1_000;
        if last_ms > 0 && now_ms < last_ms.saturating_add(period_ms) {
            return false;
        }
        let swapped =
            self.last_ms.compare_exchange(last_ms, now_ms, Ordering::Relaxed, Ordering::Relaxed);
        // The first refusal only starts the period. Of several requests one wins the exchange.
        last_ms > 0 && swapped.is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_is_refused_and_then_one_in_each_period_passes() {
        #[expect(clippy::disallowed_methods, reason = "a test needs some starting moment")]
        let since = Instant::now();
        let probes = SloProbes::default();
        let passes = |ms: u64| probes.pass(since + Duration::from_millis(ms));
        let period_ms = SloProbes::PERIOD.as_secs() * 1_000;
        assert!(!passes(0) && !passes(1) && !passes(period_ms - 1));
        assert!(passes(period_ms), "a stale prediction is tried");
        assert!(!passes(period_ms) && !passes(2 * period_ms - 1));
        assert!(passes(5 * period_ms));
        assert!(!passes(5 * period_ms + 1), "what was not used does not add up");
    }
}
