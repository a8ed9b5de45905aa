//! Retry budget: the share of traffic that may be retried.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

/// Time in which the credit beyond the hand is earned, by steady traffic or by the minimum. With
/// the usual share of 15 %, the earnings of 3 s are 5 % of the requests of 9 s, which is the gap to
/// 20 %. So in a fault that lasts longer, at most a fifth of the requests are retried, however calm
/// it was before.
const WINDOW_NS: u64 = 3_000_000_000;

/// Least time between two conversions of requests into credit.
const SETTLE_NS: u64 = 10_000_000;

/// Credit for one retry; fine enough to make rounding negligible.
const RETRY: u64 = 100 * PERCENT;
const PERCENT: u64 = 1_000;

/// Limits of a [`RetryBudget`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RetryBudgetConfig {
    /// Retries per 100 requests in the long run. More than about 20 lets a failing replica double
    /// the load on the others just when they have to carry its share.
    pub share_percent: u32,
    /// Retries available at the start, which don't fade with time: requests earn them back by their
    /// share, however seldom they come. So a quiet node still retries. Without a share there are
    /// none, since nothing would earn them back.
    pub in_hand: u32,
    /// Least number of retries earned per second, so that a few requests at a time survive the
    /// death of a replica. Three are more than the usual share of fewer than 20 requests a second,
    /// and negligible load. Without a share there are none either.
    pub per_second_min: u32,
}

impl Default for RetryBudgetConfig {
    fn default() -> Self {
        Self { share_percent: 15, in_hand: 30, per_second_min: 3 }
    }
}

/// Budget that allows a share of the requests to be retried, or a minimum per second if that is
/// more.
///
/// Each second earns the larger of two amounts: `share_percent` of its requests, or
/// `per_second_min`. All retries since the start are at most what was earned plus `in_hand`. Unused
/// credit fades to 37 % or less in 3 s, but not below `in_hand`; the credit is never more than that
/// or the earnings of 3 s of steady traffic, whichever is more. No call locks or waits; many
/// threads share one budget.
#[derive(Debug)]
pub struct RetryBudget {
    config: RetryBudgetConfig,
    /// Start of the budget, one window after the zero of all times below.
    started: Instant,
    /// Requests since `settled_ns`.
    requests: AtomicU64,
    /// Credit earned by requests before `settled_ns`.
    earned: AtomicU64,
    /// Time at which `requests` was last turned into `earned`.
    settled_ns: AtomicU64,
}

impl RetryBudget {
    /// Returns a budget that starts at `now` with everything in hand.
    #[must_use]
    pub fn new(config: RetryBudgetConfig, now: Instant) -> Self {
        Self {
            config,
            started: now,
            requests: AtomicU64::new(0),
            earned: AtomicU64::new(config.hand()),
            settled_ns: AtomicU64::new(WINDOW_NS),
        }
    }

    /// Counts a request: once, however many attempts it takes.
    pub fn on_request(&self) {
        self.requests.fetch_add(1, Ordering::Relaxed);
    }

    /// Takes the credit for one retry. Returns false if there is none; nothing may be retried then.
    #[must_use = "a retry without credit turns an outage into a storm"]
    pub fn try_retry(&self, now: Instant) -> bool {
        let since_start = now.saturating_duration_since(self.started).as_nanos();
        let now_ns = WINDOW_NS.saturating_add(u64::try_from(since_start).unwrap_or(u64::MAX));
        self.settle(now_ns);
        self.take_earned()
    }

    /// Turns the requests counted so far into credit, and lets earlier credit fade.
    ///
    /// The requests between two calls are taken to have come evenly, so that no request has to read
    /// the clock.
    fn settle(&self, now_ns: u64) {
        let settled_ns = self.settled_ns.load(Ordering::Relaxed);
        let elapsed_ns = now_ns.saturating_sub(settled_ns);
        // One thread of several wins the exchange and settles; the others go on with the old
        // credit.
        let is_mine = elapsed_ns >= SETTLE_NS
            && self
                .settled_ns
                .compare_exchange(settled_ns, now_ns, Ordering::Relaxed, Ordering::Relaxed)
                .is_ok();
        if !is_mine {
            return;
        }
        // A request that is counted in between belongs to the next settlement; none is lost.
        let requests = self.requests.swap(0, Ordering::Relaxed);
        let share = requests.saturating_mul(u64::from(self.config.share_percent) * PERCENT);
        let minimum = self.config.minimum();
        let credit = share.max(scale(minimum, elapsed_ns, 1_000_000_000));
        // Of a time longer than the window, only the credit of one window is kept.
        let fresh = scale(credit, WINDOW_NS.min(elapsed_ns), elapsed_ns);
        let kept_ns = WINDOW_NS.saturating_sub(elapsed_ns);
        let hand = self.config.hand();
        self.earned.update(Ordering::Relaxed, Ordering::Relaxed, |earned| {
            let faded = scale(earned, kept_ns, WINDOW_NS).saturating_add(fresh);
            // The credit in hand does not fade; once it was used, it has to be earned again.
            faded.max(hand.min(earned.saturating_add(credit)))
        });
    }

    fn take_earned(&self) -> bool {
        let take = |earned: u64| earned.checked_sub(RETRY);
        self.earned.try_update(Ordering::Relaxed, Ordering::Relaxed, take).is_ok()
    }
}

impl RetryBudgetConfig {
    /// Returns the credit earned per second, however few requests there are.
    fn minimum(self) -> u64 {
        if self.share_percent == 0 { 0 } else { u64::from(self.per_second_min) * RETRY }
    }

    /// Returns the credit in hand at the start.
    fn hand(self) -> u64 {
        if self.share_percent == 0 { 0 } else { u64::from(self.in_hand) * RETRY }
    }
}

/// Returns `value * part / whole` without overflow.
fn scale(value: u64, part: u64, whole: u64) -> u64 {
    let scaled = u128::from(value) * u128::from(part) / u128::from(whole);
    u64::try_from(scaled).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicBool;
    use std::time::Duration;

    use proptest::prelude::*;

    use super::*;
    use crate::test_world::NOW;

    const MILLISECOND: Duration = Duration::from_millis(1);

    fn budget(share_percent: u32, per_second_min: u32) -> RetryBudget {
        RetryBudget::new(RetryBudgetConfig { share_percent, in_hand: 0, per_second_min }, *NOW)
    }

    /// Returns a budget without a minimum.
    fn by_hand() -> RetryBudget {
        let config = RetryBudgetConfig { share_percent: 20, in_hand: 10, per_second_min: 0 };
        RetryBudget::new(config, *NOW)
    }

    /// Returns the retries allowed out of `wanted` at that moment.
    fn allowed(budget: &RetryBudget, wanted: u64, at: Duration) -> u64 {
        (0..wanted).filter(|_| budget.try_retry(*NOW + at)).count() as u64
    }

    /// Returns all retries allowed while so many requests come and every failure wants three at
    /// once.
    fn storm(budget: &RetryBudget, requests: u32, every_ms: u32) -> u64 {
        let mut retries = 0;
        for number in 0..requests {
            budget.on_request();
            retries += allowed(budget, 3, MILLISECOND * every_ms * number);
        }
        retries
    }

    #[test]
    fn a_storm_is_held_to_the_share_or_to_the_minimum_where_that_is_more() {
        let retries = storm(&budget(20, 3), 60_000, 1);
        assert!((11_980..=12_000).contains(&retries), "{retries} of a fifth");
        let retries = storm(&budget(20, 3), 300, 200);
        assert!((160..=180).contains(&retries), "{retries} in 60 s of five requests each");
    }

    #[test]
    fn by_default_a_storm_is_held_to_its_share_of_the_requests_and_thirty() {
        // From 20 requests a second to a thousand.
        for (every_ms, requests) in [(50, 300), (20, 1_000), (1, 60_000)] {
            let retries =
                storm(&RetryBudget::new(RetryBudgetConfig::default(), *NOW), requests, every_ms);
            let ceiling = u64::from(requests) * 15 / 100 + 30;
            assert!(retries <= ceiling, "{retries} > {ceiling} every {every_ms} ms");
            assert!(retries + 2 >= ceiling, "{retries} of {ceiling} every {every_ms} ms");
        }
    }

    #[test]
    fn by_default_no_fault_of_nine_seconds_after_a_calm_time_has_more_than_a_fifth() {
        // From 67 requests a second, of which thirty are a twentieth of nine seconds, to a thousand.
        for every_ms in [15, 10, 4, 1] {
            let budget = RetryBudget::new(RetryBudgetConfig::default(), *NOW);
            for at in (0..60_000_u32).step_by(every_ms) {
                budget.on_request();
                budget.settle(WINDOW_NS + u64::from(at) * 1_000_000);
            }
            let (mut requests, mut retries) = (0, 0);
            for at in (60_000..69_100_u32).step_by(every_ms) {
                budget.on_request();
                requests += 1;
                retries += allowed(&budget, 3, MILLISECOND * at);
            }
            assert!(5 * retries <= requests + 10, "{retries} of {requests} every {every_ms} ms");
            assert!(6 * retries >= requests, "{retries} of {requests} every {every_ms} ms");
        }
    }

    #[test]
    fn without_a_minimum_that_holds_however_seldom_they_come() {
        for (every_ms, requests) in [(10_000, 100), (1_000, 300), (100, 1_000)] {
            let retries = storm(&by_hand(), requests, every_ms);
            let ceiling = u64::from(requests) / 5 + 10;
            assert!((ceiling - 2..=ceiling).contains(&retries), "{retries} every {every_ms} ms");
        }
    }

    #[test]
    fn what_is_in_hand_does_not_fade_and_does_not_grow() {
        let budget = by_hand();
        assert_eq!(
            allowed(&budget, 100, Duration::from_secs(86_400)),
            10,
            "a day without requests"
        );
        assert_eq!(allowed(&budget, 100, Duration::from_secs(2 * 86_400)), 0, "time gives nothing");
        (0..1_000).for_each(|_| budget.on_request());
        assert_eq!(allowed(&budget, 100, Duration::from_secs(4 * 86_400)), 10, "requests do");
    }

    #[test]
    fn seldom_requests_earn_the_hand_back_by_their_share() {
        let budget = by_hand();
        let minute = |number: u64| Duration::from_secs(60 * number);
        assert_eq!(allowed(&budget, 100, Duration::ZERO), 10);
        // A look after each request or after all of them: the result is equal.
        let looked: u64 = (1..=20)
            .map(|number| {
                budget.on_request();
                allowed(&budget, 1, minute(number))
            })
            .sum();
        (0..20).for_each(|_| budget.on_request());
        assert_eq!((looked, allowed(&budget, 100, minute(40))), (4, 4));
    }

    #[test]
    fn the_hand_comes_not_on_top_of_what_traffic_earned() {
        let budget = by_hand();
        (0..10_000).for_each(|_| budget.on_request());
        assert_eq!(allowed(&budget, 10_000, Duration::from_secs(3)), 2_000);
        let budget = RetryBudget::new(
            RetryBudgetConfig {
                share_percent: 0,
                per_second_min: 0,
                ..RetryBudgetConfig::default()
            },
            *NOW,
        );
        assert_eq!(allowed(&budget, 100, Duration::from_secs(1)), 0, "a share of nothing");
    }

    #[test]
    fn the_minimum_holds_without_any_traffic() {
        let budget = budget(20, 3);
        let later: u64 = (0..=20_000).map(|at| allowed(&budget, 1, MILLISECOND * at)).sum();
        assert!((54..=60).contains(&later), "{later} in 20 s of three each: some fades");
        assert_eq!(allowed(&budget, 100, Duration::from_secs(3_600)), 9, "never more in hand");
    }

    #[test]
    fn a_burst_can_use_what_three_seconds_of_traffic_earned() {
        let budget = budget(20, 0);
        for millisecond in 0..600_000 {
            budget.on_request();
            if millisecond % 100 == 0 {
                budget.settle(WINDOW_NS + millisecond * 1_000_000);
            }
        }
        let burst = allowed(&budget, 100_000, Duration::from_secs(600));
        assert!((570..=600).contains(&burst), "{burst} of 20 % of 3,000 requests");
    }

    #[test]
    fn a_long_time_without_failures_earns_no_more_than_three_seconds_of_it() {
        let budget = budget(20, 0);
        (0..100_000).for_each(|_| budget.on_request());
        let burst = allowed(&budget, 100_000, Duration::from_secs(30));
        assert_eq!(burst, 2_000, "20 % of a tenth of the requests");
    }

    #[test]
    fn credit_not_used_fades_whether_looked_at_or_not() {
        for looks in [0, 1, 10, 1_000] {
            let budget = budget(20, 0);
            (0..10_000).for_each(|_| budget.on_request());
            assert_eq!(allowed(&budget, 1, Duration::from_secs(1)), 1);
            for look in 0..looks {
                budget.settle(WINDOW_NS + 1_000_000_000 + look * WINDOW_NS / looks);
            }
            let left = allowed(&budget, 2_000, Duration::from_secs(4));
            assert!(left <= 736, "{left} of 2,000 after 3 s and {looks} looks");
        }
    }

    #[test]
    fn nothing_is_allowed_with_both_limits_at_zero() {
        let budget = budget(0, 0);
        (0..1_000).for_each(|_| budget.on_request());
        assert_eq!(allowed(&budget, 100, Duration::from_secs(1)), 0);
    }

    #[test]
    fn extreme_numbers_neither_overflow_nor_panic() {
        let budget = budget(u32::MAX, u32::MAX);
        budget.requests.store(u64::MAX, Ordering::Relaxed);
        assert_eq!(allowed(&budget, 10, Duration::from_secs(1 << 40)), 10);
    }

    #[test]
    fn threads_together_get_no_more_than_one_alone() {
        let budget = budget(20, 3);
        (0..5_000).for_each(|_| budget.on_request());
        let at = Duration::from_secs(3);
        let go = AtomicBool::new(false);
        let retries: u64 = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..4)
                .map(|_| {
                    scope.spawn(|| {
                        while !go.load(Ordering::Acquire) {
                            std::hint::spin_loop();
                        }
                        allowed(&budget, 2_000, at)
                    })
                })
                .collect();
            go.store(true, Ordering::Release);
            threads.into_iter().map(|thread| thread.join().unwrap()).sum()
        });
        assert_eq!(retries, 1_000);
    }

    proptest! {
        #[test]
        fn retries_never_exceed_the_share_and_the_minimum(
            share_percent in 0..150_u32,
            in_hand in 0..30_u32,
            per_second_min in 0..20_u32,
            steps in prop::collection::vec((0..3_000_u32, 0..50_u64, 0..50_u64), 1..200),
        ) {
            let config = RetryBudgetConfig { share_percent, in_hand, per_second_min };
            let budget = RetryBudget::new(config, *NOW);
            let (mut at, mut requests, mut retries) = (Duration::ZERO, 0, 0);
            for (wait_ms, arriving, failing) in steps {
                at += MILLISECOND * wait_ms;
                (0..arriving).for_each(|_| budget.on_request());
                requests += arriving;
                retries += allowed(&budget, failing, at);
                let share = requests as f64 * f64::from(share_percent) / 100.0;
                let minimum = f64::from(per_second_min) * (3.0 + at.as_secs_f64());
                prop_assert!(retries as f64 <= f64::from(in_hand) + share + minimum + 1e-6);
            }
        }
    }
}
