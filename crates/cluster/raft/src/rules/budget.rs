//! Rate limit of the entries that a node writes by itself: a token bucket. Pure: the time is an
//! argument.
//!
//! The log goes to every node and to every disk, so frequent events must not be written one by one.
//! Writes of people are not counted: an operator's write is never refused because of entries that
//! the cluster writes about itself, and people are slow.

use std::time::Duration;

/// Urgency of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Urgency {
    /// A person or their script, over the admin API; or what the cluster itself needs to work, as
    /// a change of its members. Not counted.
    Operator,
    /// Health and leases of replicas: what routing goes wrong without.
    Health,
    /// Information that only makes routing better.
    Hint,
}

/// The size of the budget.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BudgetConfig {
    /// Entries a second that a node writes by itself in the long run.
    pub entries_per_s: u32,
    /// Entries that it may write at once after a quiet time: a region's replicas that all fail
    /// together are written at once.
    pub burst: u32,
    /// Entries that hints have to leave for health.
    pub kept_for_health: u32,
}

impl Default for BudgetConfig {
    fn default() -> Self {
        Self { entries_per_s: 10, burst: 50, kept_for_health: 25 }
    }
}

/// Token bucket of entries.
#[derive(Clone, Debug)]
pub(crate) struct Budget {
    config: BudgetConfig,
    /// Thousandths of an entry, so that short times count too.
    left_milli: u64,
    /// The time up to which it was filled.
    filled: Duration,
}

impl Budget {
    /// A full budget.
    pub(crate) fn new(config: BudgetConfig) -> Self {
        Self { config, left_milli: u64::from(config.burst) * 1_000, filled: Duration::ZERO }
    }

    /// Takes one entry at `now`, which is the time since some fixed moment.
    ///
    /// # Errors
    /// Returns the time after which there will be room.
    pub(crate) fn take(&mut self, urgency: Urgency, now: Duration) -> Result<(), Duration> {
        self.fill(now);
        let kept = match urgency {
            Urgency::Operator => return Ok(()),
            Urgency::Health => 0,
            Urgency::Hint => self.config.kept_for_health,
        };
        let needed_milli = (u64::from(kept) + 1) * 1_000;
        match needed_milli.checked_sub(self.left_milli) {
            None | Some(0) => {
                self.left_milli -= 1_000;
                Ok(())
            }
            Some(missing_milli) => {
                let per_s = u64::from(self.config.entries_per_s.max(1));
                // Thousandths of an entry over entries a second are milliseconds.
                Err(Duration::from_millis(missing_milli.div_ceil(per_s)))
            }
        }
    }

    fn fill(&mut self, now: Duration) {
        let Some(passed) = now.checked_sub(self.filled) else { return };
        let passed_ms = u64::try_from(passed.as_millis()).unwrap_or(u64::MAX);
        let most_milli = u64::from(self.config.burst) * 1_000;
        let more_milli = passed_ms.saturating_mul(self.config.entries_per_s.into());
        self.left_milli = self.left_milli.saturating_add(more_milli).min(most_milli);
        // The rest below a millisecond counts next time.
        self.filled += Duration::from_millis(passed_ms);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn ms(milliseconds: u64) -> Duration {
        Duration::from_millis(milliseconds)
    }

    fn taken(budget: &mut Budget, urgency: Urgency, now: Duration) -> usize {
        (0..1_000).take_while(|_| budget.take(urgency, now).is_ok()).count()
    }

    #[test]
    fn a_burst_then_the_steady_rate() {
        let mut budget = Budget::new(BudgetConfig::default());
        assert_eq!(taken(&mut budget, Urgency::Health, ms(0)), 50);
        assert_eq!(budget.take(Urgency::Health, ms(0)), Err(ms(100)));
        assert_eq!(budget.take(Urgency::Health, ms(60)), Err(ms(40)));
        assert_eq!(taken(&mut budget, Urgency::Health, ms(100)), 1);
        assert_eq!(taken(&mut budget, Urgency::Health, ms(1_100)), 10);
        assert_eq!(taken(&mut budget, Urgency::Health, ms(3_600_000)), 50);
    }

    #[test]
    fn hints_leave_half_for_health() {
        let mut budget = Budget::new(BudgetConfig::default());
        assert_eq!(taken(&mut budget, Urgency::Hint, ms(0)), 25);
        assert_eq!(budget.take(Urgency::Hint, ms(0)), Err(ms(100)));
        assert_eq!(taken(&mut budget, Urgency::Health, ms(0)), 25);
        // Hints wait until health has all of its part back.
        assert_eq!(budget.take(Urgency::Hint, ms(0)), Err(ms(2_600)));
        assert_eq!(taken(&mut budget, Urgency::Hint, ms(2_600)), 1);
    }

    #[test]
    fn operators_are_never_refused_and_take_nothing() {
        let mut budget = Budget::new(BudgetConfig::default());
        assert_eq!(taken(&mut budget, Urgency::Operator, ms(0)), 1_000);
        assert_eq!(taken(&mut budget, Urgency::Health, ms(0)), 50);
        assert_eq!(taken(&mut budget, Urgency::Operator, ms(0)), 1_000);
    }

    proptest! {
        #[test]
        fn never_more_than_the_burst_and_the_rate(
            steps in prop::collection::vec((0_u64..500, any::<bool>()), 1..300),
        ) {
            let mut budget = Budget::new(BudgetConfig::default());
            let (mut now, mut written) = (0, 0);
            for (gap, is_hint) in steps {
                now += gap;
                let urgency = if is_hint { Urgency::Hint } else { Urgency::Health };
                let before = budget.clone();
                match budget.take(urgency, ms(now)) {
                    Ok(()) => written += 1,
                    // The returned time is right: then there is room, and not before.
                    Err(wait) => {
                        prop_assert!(before.clone().take(urgency, ms(now) + wait).is_ok());
                        let early = ms(now) + wait - ms(1);
                        prop_assert!(before.clone().take(urgency, early).is_err());
                    }
                }
                prop_assert!(written * 1_000 <= 50_000 + now * 10);
            }
        }

        /// With any number of hints, health may write at least as much as with a budget of its own
        /// that is as large as the part kept for health and filled at the same rate.
        #[test]
        fn health_is_never_put_off_by_hints(
            config in (1_u32..40, 1_u32..80, 0_u32..80).prop_map(|(entries_per_s, burst, kept)| {
                BudgetConfig { entries_per_s, burst, kept_for_health: kept.min(burst) }
            }),
            steps in prop::collection::vec((0_u64..700, 0_u8..5), 1..400),
        ) {
            let own = BudgetConfig { burst: config.kept_for_health, ..config };
            let (mut shared, mut own) = (Budget::new(config), Budget::new(own));
            let mut now = 0;
            for (gap, hints) in steps {
                now += gap;
                for _ in 0..hints * 20 {
                    _ = shared.take(Urgency::Hint, ms(now));
                }
                let alone = own.take(Urgency::Health, ms(now));
                let among_hints = shared.take(Urgency::Health, ms(now));
                prop_assert!(among_hints.is_ok() || alone.is_err(), "put off at {} ms", now);
                if alone.is_err() && among_hints.is_ok() {
                    // It took what the other budget does not have.
                    own.left_milli = 0;
                }
            }
        }
    }
}
