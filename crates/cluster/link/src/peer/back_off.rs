//! Exponential backoff of dials. Pure.

use std::time::Duration;

use crate::config::{LinkLimits, ms};

/// Exponential backoff: waits that double with each failure, between two bounds and with jitter, so
/// that the nodes of a region don't all dial a returning peer at the same moment.
#[derive(Debug)]
pub(super) struct BackOff {
    min: Duration,
    max: Duration,
    failures: u32,
}

impl BackOff {
    pub(super) fn new(limits: &LinkLimits) -> Self {
        Self { min: ms(limits.back_off_min_ms), max: ms(limits.back_off_max_ms), failures: 0 }
    }

    /// Returns the wait after one more failure.
    pub(super) fn after_failure(&mut self, random: &mut fastrand::Rng) -> Duration {
        self.failures = self.failures.saturating_add(1);
        // Ten doublings exceed any sensible bound.
        let top = (self.min * (1 << self.failures.min(10))).min(self.max).max(self.min);
        // At least half of the wait, so that jitter does not undo the backoff.
        let low = (top / 2).max(self.min);
        low + (top - low).mul_f64(random.f64())
    }

    /// Returns the wait after the loss of a connection that had worked: a random part of the
    /// shortest wait.
    pub(super) fn after_loss(&mut self, random: &mut fastrand::Rng) -> Duration {
        self.failures = 0;
        self.min.mul_f64(random.f64())
    }

    /// Returns the number of failures since a connection worked.
    pub(super) fn failures(&self) -> u32 {
        self.failures
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_grow_within_their_bounds_and_start_again_after_a_success() {
        for seed in 0..200 {
            let mut random = fastrand::Rng::with_seed(seed);
            let limits = LinkLimits::default();
            let mut back_off = BackOff::new(&limits);
            let (min, max) = (Duration::from_millis(100), Duration::from_secs(5));
            let waits: Vec<_> = (0..20).map(|_| back_off.after_failure(&mut random)).collect();
            assert!(waits.iter().all(|wait| (min..=max).contains(wait)), "{waits:?}");
            assert!(waits[0] <= min * 2, "{waits:?}");
            assert!(waits[19] >= max / 2, "{waits:?}");
            assert!(back_off.after_loss(&mut random) <= min);
            assert!(back_off.after_failure(&mut random) <= min * 2);
        }
    }

    #[test]
    fn two_nodes_do_not_wait_the_same() {
        let wait = |seed| {
            let mut back_off = BackOff::new(&LinkLimits::default());
            (0..3).map(|_| back_off.after_failure(&mut fastrand::Rng::with_seed(seed))).sum()
        };
        let waits: std::collections::BTreeSet<Duration> = (0..50).map(wait).collect();
        assert!(waits.len() > 45);
    }
}
