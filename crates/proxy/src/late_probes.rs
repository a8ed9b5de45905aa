//! Requests that are served although they are predicted to come too late.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// How often one is: a prediction that was never tried again would stay wrong for ever.
pub(crate) const PROBE_PERIOD: Duration = Duration::from_secs(10);

/// Lets one request in [`PROBE_PERIOD`] through. The period begins with the first that is refused.
#[derive(Debug)]
pub(crate) struct LateProbes {
    since: Instant,
    /// When the last one passed, or the first was refused, in milliseconds since then; 0 before that.
    last_ms: AtomicU64,
}

impl LateProbes {
    /// Whether the request that is here `now` may pass. Of several at a time one may.
    pub(crate) fn pass(&self, now: Instant) -> bool {
        let passed_ms = now.saturating_duration_since(self.since).as_millis();
        let now_ms = u64::try_from(passed_ms).unwrap_or(u64::MAX).saturating_add(1);
        let last_ms = self.last_ms.load(Ordering::Relaxed);
        let period_ms = PROBE_PERIOD.as_secs() * 1_000;
        if last_ms > 0 && now_ms < last_ms.saturating_add(period_ms) {
            return false;
        }
        let swapped =
            self.last_ms.compare_exchange(last_ms, now_ms, Ordering::Relaxed, Ordering::Relaxed);
        last_ms > 0 && swapped.is_ok()
    }
}

impl Default for LateProbes {
    fn default() -> Self {
        Self { since: Instant::now(), last_ms: AtomicU64::new(0) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_is_refused_and_then_one_in_each_period_passes() {
        let probes = LateProbes::default();
        let passes = |ms: u64| probes.pass(probes.since + Duration::from_millis(ms));
        let period_ms = PROBE_PERIOD.as_secs() * 1_000;
        assert!(!passes(0) && !passes(1) && !passes(period_ms - 1));
        assert!(passes(period_ms), "a stale prediction is tried");
        assert!(!passes(period_ms) && !passes(2 * period_ms - 1));
        assert!(passes(5 * period_ms));
        assert!(!passes(5 * period_ms + 1), "what was not used does not add up");
    }
}
