//! Backpressure: a replica that asks for a pause gets one.

use std::time::{Duration, Instant};

use crate::HealthConfig;
use crate::time::{later, later_ms};

/// Number of answers that are remembered to see if most are "busy".
const RECENT: usize = 8;
/// Fewest answers that show a majority.
const RECENT_MIN: usize = 4;
/// Time without an answer after which earlier answers are forgotten.
const RECENT_FOR: Duration = Duration::from_secs(10);
/// Largest random addition to a wait, so that nodes do not return at the same moment.
const JITTER_MS_MAX: u64 = 250;

/// Pause of a replica that asked for one.
#[derive(Clone, Debug, Default)]
pub(crate) struct Pressure {
    until: Option<Instant>,
    /// True for each recent answer that was "busy", newest last.
    recent: Vec<bool>,
    heard_at: Option<Instant>,
}

impl Pressure {
    /// Takes in a request that the replica accepted.
    pub(crate) fn on_answer(&mut self, now: Instant) {
        self.remember(now, false);
    }

    /// Takes in a "busy" reply. Returns true if the replica is paused from now on.
    ///
    /// The time in its `Retry-After` is kept, up to a limit. One refusal without a time means one
    /// request too many at that moment; if most requests are refused, the replica gets a short
    /// pause.
    pub(crate) fn on_busy(
        &mut self,
        now: Instant,
        retry_after: Option<Duration>,
        config: &HealthConfig,
        rng: &mut fastrand::Rng,
    ) -> bool {
        self.remember(now, true);
        let max = Duration::from_millis(config.retry_after_max_ms);
        // A `Retry-After` of 0 counts as none.
        let wait = match retry_after.filter(|wait| !wait.is_zero()) {
            Some(wait) => wait.min(max),
            None if self.is_mostly_busy() => {
                // The next short pause needs a new majority.
                self.recent.clear();
                Duration::from_millis(config.busy_pause_ms).min(max)
            }
            None => return false,
        };
        let asked = later(now, wait);
        // An end within the present pause changes nothing, because each change is published to all
        // readers.
        if !wait.is_zero() && self.until.is_none_or(|until| asked > until) {
            self.until = Some(later_ms(asked, rng.u64(0..=JITTER_MS_MAX)));
        }
        self.until.is_some()
    }

    /// Moves on to `now`. Returns true if a pause ended.
    pub(crate) fn advance(&mut self, now: Instant) -> bool {
        self.until.take_if(|until| now >= *until).is_some()
    }

    pub(crate) fn until(&self) -> Option<Instant> {
        self.until
    }

    fn remember(&mut self, now: Instant, is_busy: bool) {
        let heard_at = self.heard_at.replace(now);
        if heard_at.is_some_and(|at| now.saturating_duration_since(at) > RECENT_FOR) {
            self.recent.clear();
        }
        if self.recent.len() == RECENT {
            self.recent.remove(0);
        }
        self.recent.push(is_busy);
    }

    fn is_mostly_busy(&self) -> bool {
        let busy = self.recent.iter().filter(|is_busy| **is_busy).count();
        self.recent.len() >= RECENT_MIN && 2 * busy > self.recent.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_fleet::{ms, start};

    struct Test(Pressure, fastrand::Rng);

    impl Test {
        fn new() -> Self {
            Self(Pressure::default(), fastrand::Rng::with_seed(1))
        }

        fn busy(&mut self, at_ms: u64, retry_after_ms: Option<u64>) -> bool {
            let config = HealthConfig::default();
            self.0.on_busy(start() + ms(at_ms), retry_after_ms.map(ms), &config, &mut self.1)
        }

        fn is_waiting_at(&self, at_ms: u64) -> bool {
            self.0.clone().advance(start() + ms(at_ms));
            self.0.until().is_some_and(|until| until > start() + ms(at_ms))
        }
    }

    #[test]
    fn a_named_time_is_kept_to() {
        let mut test = Test::new();
        assert!(test.busy(0, Some(2_000)));
        assert!(test.is_waiting_at(1_999));
        assert!(!test.0.advance(start() + ms(1_999)));
        assert!(test.0.advance(start() + ms(2_250)), "the wait ends, with a little jitter");
        assert_eq!(test.0.until(), None);
    }

    #[test]
    fn those_that_name_the_same_time_do_not_all_come_back_at_once() {
        let mut test = Test::new();
        let mut ends = std::collections::BTreeSet::new();
        for _ in 0..20 {
            test.0 = Pressure::default();
            test.busy(0, Some(1_000));
            ends.extend(test.0.until());
        }
        assert!(ends.len() > 10, "{}", ends.len());
    }

    #[test]
    fn no_time_is_longer_than_the_limit() {
        let mut test = Test::new();
        let config = HealthConfig::default();
        test.0.on_busy(start(), Some(Duration::MAX), &config, &mut test.1);
        assert!(test.is_waiting_at(29_999) && !test.is_waiting_at(30_250));
    }

    #[test]
    fn the_longest_wait_counts_and_shorter_ones_change_nothing() {
        let mut test = Test::new();
        test.busy(0, Some(5_000));
        let until = test.0.until();
        assert!(test.busy(100, Some(1_000)));
        assert_eq!(test.0.until(), until);
        test.busy(100, Some(20_000));
        assert!(test.is_waiting_at(20_099));
    }

    #[test]
    fn one_refusal_without_a_time_means_nothing() {
        let mut test = Test::new();
        assert!(!test.busy(0, None));
        assert!(!test.busy(0, Some(0)), "zero seconds is no time either");
        (0..4).for_each(|_| test.0.on_answer(start()));
        assert!(!test.busy(0, None), "3 of 7");
    }

    #[test]
    fn mostly_refusals_bring_a_short_pause_and_then_a_new_count() {
        let mut test = Test::new();
        test.0.on_answer(start());
        assert_eq!([(); 3].map(|()| test.busy(0, None)), [false, false, true]);
        assert!(test.is_waiting_at(999) && !test.is_waiting_at(1_250));
        test.0.advance(start() + ms(1_250));
        assert_eq!([(); 4].map(|()| test.busy(1_300, None)), [false, false, false, true]);
    }

    #[test]
    fn old_refusals_are_forgotten() {
        let mut test = Test::new();
        (0..3).for_each(|_| assert!(!test.busy(0, None)));
        assert!(!test.busy(10_001, None));
    }

    #[test]
    fn half_refusals_bring_no_pause() {
        let mut test = Test::new();
        for _ in 0..50 {
            test.0.on_answer(start());
            assert!(!test.busy(0, None));
        }
    }
}
