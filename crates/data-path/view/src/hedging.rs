//! Hedging: a second attempt at another replica if the first byte is late, and its budget.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use spillway_route::{RetryBudget, RetryBudgetConfig};

/// Number of times to first byte from which on their percentile is used.
const SEEN_MIN: u64 = 100;
/// Shortest time before a second attempt, whatever the percentile: below it, only chance separates
/// two replicas, and the second request costs more than it can gain.
const AFTER_MIN: Duration = Duration::from_millis(5);
/// Greatest relative step of the percentile by one time: it follows a change within some hundred
/// requests, and a single time moves it little.
const STEP: f32 = 0.05;

/// Hedging of a route's requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HedgeSpec {
    /// Time without a first byte after which a second replica is asked.
    pub after: HedgeAfter,
    /// Most second attempts per 100 requests. They cost capacity, so choose the share of it that
    /// faster replies are worth.
    pub budget_percent: u32,
}

/// Times without a first byte after which a second replica is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HedgeAfter {
    /// A fixed time.
    Time(Duration),
    /// The time within which this percentage of replies of the same route and model began.
    Percentile(u8),
}

/// Hedging state of a route.
#[derive(Debug)]
pub struct Hedges {
    spec: HedgeSpec,
    budget: RetryBudget,
}

/// Running estimate of a percentile of times to first byte, without keeping the times.
///
/// Each time above the estimate moves it up by a fraction of itself, each time below moves it down,
/// so that it rests where the wanted share lies below. Threads may overwrite each other's steps,
/// which costs a little precision and no waiting.
#[derive(Debug, Default)]
pub struct FirstByte {
    /// The estimate in milliseconds, as the bits of an `f32`.
    percentile_ms: AtomicU32,
    seen: AtomicU64,
}

impl Hedges {
    /// Returns hedging by `spec`, with no request seen before `now`.
    pub fn new(spec: HedgeSpec, now: Instant) -> Self {
        // No allowance beyond the share: at low load hedging gains little.
        let share_percent = spec.budget_percent;
        let config = RetryBudgetConfig { share_percent, in_hand: 0, per_second_min: 0 };
        Self { spec, budget: RetryBudget::new(config, now) }
    }

    /// Returns the settings.
    pub fn spec(&self) -> HedgeSpec {
        self.spec
    }

    /// Counts a request that may be hedged, and returns the time after which it is; `None` if the
    /// percentile is not known yet.
    pub fn on_request(&self, first_byte: &FirstByte) -> Option<Duration> {
        self.budget.on_request();
        match self.spec.after {
            HedgeAfter::Time(after) => Some(after),
            HedgeAfter::Percentile(_) => first_byte.percentile().map(|time| time.max(AFTER_MIN)),
        }
    }

    /// Takes the budget for one second attempt; returns `false` if it is used up.
    #[must_use]
    pub fn try_hedge(&self, now: Instant) -> bool {
        self.budget.try_retry(now)
    }

    /// Notes the time to the first byte, or the time without one until the result no longer
    /// mattered.
    pub fn seen(&self, first_byte: &FirstByte, time: Duration) {
        if let HedgeAfter::Percentile(percent) = self.spec.after {
            first_byte.note(time, percent);
        }
    }
}

impl FirstByte {
    fn percentile(&self) -> Option<Duration> {
        let is_known = self.seen.load(Ordering::Relaxed) >= SEEN_MIN;
        let percentile_ms = f32::from_bits(self.percentile_ms.load(Ordering::Relaxed));
        is_known.then(|| Duration::from_secs_f32(percentile_ms / 1e3))
    }

    fn note(&self, time: Duration, percent: u8) {
        let time_ms = time.as_secs_f32() * 1e3;
        let below = f32::from(percent) / 100.0;
        let is_first = self.seen.fetch_add(1, Ordering::Relaxed) == 0;
        let percentile_ms = f32::from_bits(self.percentile_ms.load(Ordering::Relaxed));
        let moved_ms = if is_first {
            time_ms
        } else if time_ms > percentile_ms {
            // At least 0.1 ms, since an estimate of zero would never grow by a fraction of itself.
            (percentile_ms * (1.0 + STEP * below)).max(0.1)
        } else {
            percentile_ms * (1.0 - STEP * (1.0 - below))
        };
        self.percentile_ms.store(moved_ms.to_bits(), Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hedges(after: HedgeAfter, budget_percent: u32) -> Hedges {
        Hedges::new(HedgeSpec { after, budget_percent }, Instant::now())
    }

    #[test]
    fn a_fixed_time_needs_no_knowledge() {
        let hedges = hedges(HedgeAfter::Time(Duration::from_millis(200)), 5);
        let first_byte = FirstByte::default();
        assert_eq!(hedges.on_request(&first_byte), Some(Duration::from_millis(200)));
        hedges.seen(&first_byte, Duration::from_secs(9));
        assert_eq!(first_byte.percentile(), None, "nothing is followed that nobody asks for");
    }

    #[test]
    fn the_percentile_rests_where_its_share_lies_below() {
        for percent in [50_u8, 90, 95, 99] {
            let hedges = hedges(HedgeAfter::Percentile(percent), 5);
            let first_byte = FirstByte::default();
            let mut dice = fastrand::Rng::with_seed(percent.into());
            // Times spread evenly from 100 to 200 ms.
            let mut time = || Duration::from_secs_f32(0.1 + 0.1 * dice.f32());
            (0..SEEN_MIN - 1).for_each(|_| hedges.seen(&first_byte, time()));
            assert_eq!(hedges.on_request(&first_byte), None, "too few were seen");
            (0..20_000).for_each(|_| hedges.seen(&first_byte, time()));
            let mut sum_ms = 0.0;
            for _ in 0..1_000 {
                hedges.seen(&first_byte, time());
                sum_ms += first_byte.percentile().unwrap().as_secs_f32();
            }
            let due_ms = 100.0 + f32::from(percent);
            assert!((sum_ms - due_ms).abs() < 12.0, "p{percent}: {sum_ms} and not {due_ms}");
        }
    }

    #[test]
    fn it_follows_a_change_and_never_ends_at_nothing() {
        let hedges = hedges(HedgeAfter::Percentile(95), 5);
        let first_byte = FirstByte::default();
        (0..5_000).for_each(|_| hedges.seen(&first_byte, Duration::ZERO));
        assert_eq!(hedges.on_request(&first_byte), Some(AFTER_MIN));
        (0..500).for_each(|_| hedges.seen(&first_byte, Duration::from_millis(80)));
        let after = hedges.on_request(&first_byte).unwrap();
        assert!((75.0..86.0).contains(&(after.as_secs_f32() * 1e3)), "{after:?}");
    }

    #[test]
    fn second_attempts_keep_to_their_share() {
        let hedges = hedges(HedgeAfter::Time(Duration::from_millis(1)), 5);
        let (first_byte, start) = (FirstByte::default(), Instant::now());
        let mut second = 0;
        for millisecond in 0..20_000 {
            let now = start + Duration::from_millis(millisecond);
            assert!(hedges.on_request(&first_byte).is_some());
            second += u32::from(hedges.try_hedge(now));
        }
        assert!((980..=1_000).contains(&second), "{second} of 20,000");
    }
}
