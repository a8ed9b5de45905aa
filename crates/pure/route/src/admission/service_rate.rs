//! Measured service rate of a queue: how fast it hands requests to replicas.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use crate::Asker;
use crate::queue::{CLASSES, class};

/// Requests per second that a queue gives to replicas while something waits.
///
/// Only time counts in which something waits: all replicas are full then, and the requests that
/// begin show what replicas can do. Idle time would only show how few requests came.
///
/// Waiting requests share the replicas with requests of more urgent classes and of other tenants,
/// which go on coming. So requests that begin are counted by class and tenant.
#[derive(Clone, Debug, Default)]
pub struct ServiceRate {
    state: BusyState,
    /// Requests that began, and the busy seconds in which they began; both fade.
    begun: f64,
    busy_s: f64,
    /// Requests that began, by class; they fade likewise.
    classes: [Begun; CLASSES],
    /// Factor by which the counts in `classes` have faded.
    faded: Faded,
}

#[derive(Clone, Debug, Default)]
struct Begun {
    all: f64,
    by_tenant: BTreeMap<u64, f64>,
}

/// Factor common to many counts, so that all of them fade without a visit to each.
#[derive(Clone, Copy, Debug)]
struct Faded(f64);

impl Default for Faded {
    fn default() -> Self {
        Self(1.0)
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum BusyState {
    /// Nothing has ever waited.
    // Unused => Busy
    #[default]
    Unused,
    /// Something waits, and time was counted up to this moment.
    // Busy => Idle
    Busy(Instant),
    /// Nothing waits since this moment.
    // Idle => Busy
    Idle(Instant),
}

impl ServiceRate {
    /// Notes that something waits from `now` on, or that nothing does. Call it whenever that
    /// changes; further calls in between do no harm.
    pub fn set_busy(&mut self, now: Instant, is_busy: bool) {
        self.count_time(now);
        self.state = match (is_busy, self.state) {
            (true, _) => BusyState::Busy(now),
            (false, BusyState::Busy(_)) => BusyState::Idle(now),
            (false, other) => other,
        };
    }

    /// Counts a request that was given to a replica at `now`, if something waits.
    pub fn note(&mut self, asker: &Asker, now: Instant) {
        self.count_time(now);
        // The last waiting request begins in the same moment in which nothing waits any more.
        if !matches!(self.state, BusyState::Busy(_)) && self.state != BusyState::Idle(now) {
            return;
        }
        self.begun += 1.0;
        // Earlier counts are to be multiplied by the common factor; a new request counts in full.
        let one = 1.0 / self.faded.0;
        let class = &mut self.classes[class(asker.priority)];
        class.all += one;
        if class.by_tenant.len() < TENANTS_MAX || class.by_tenant.contains_key(&asker.tenant) {
            *class.by_tenant.entry(asker.tenant).or_default() += one;
        }
    }

    /// Returns requests per second. `None` if too few were seen, or if the last busy time is so
    /// long ago that the replicas may have changed.
    #[must_use]
    pub fn rate_per_s(&self, now: Instant) -> Option<f32> {
        let running_s = match self.state {
            BusyState::Unused => return None,
            BusyState::Busy(since) => now.saturating_duration_since(since).as_secs_f64(),
            BusyState::Idle(since) if now.saturating_duration_since(since) > FORGET => {
                return None;
            }
            BusyState::Idle(_) => 0.0,
        };
        let busy_s = self.busy_s + running_s;
        let is_enough = self.begun >= BEGUN_MIN && busy_s >= BUSY_MIN_S;
        is_enough.then(|| (self.begun / busy_s) as f32)
    }

    /// Returns the requests per second that are left for this class and tenant if more urgent
    /// classes and other tenants go on as they do. `share` is the tenant's share in its class.
    /// `None` in the same cases as [`Self::rate_per_s`].
    #[must_use]
    pub fn rate_for(&self, asker: &Asker, share: f32, now: Instant) -> Option<f32> {
        let rate_per_s = self.rate_per_s(now).filter(|&rate| rate > 0.0)?;
        let part = |count: f64| (count * self.faded.0 / self.begun.max(1.0)).min(1.0) as f32;
        let own = class(asker.priority);
        let above: f32 = self.classes[..own].iter().map(|class| part(class.all)).sum();
        // However much more urgent work there is, a class keeps the share of its turns.
        let left = (1.0 - above).max(TURNS_SHARE);
        let class = &self.classes[own];
        let own = class.by_tenant.get(&asker.tenant).copied().unwrap_or(0.0);
        let others = part(class.all - own);
        // However much the others take now, turns give the tenant its share.
        Some(rate_per_s * (left - others).max(left * share))
    }

    /// Counts the time since the last call, and lets earlier counts fade.
    fn count_time(&mut self, now: Instant) {
        let BusyState::Busy(since) = &mut self.state else { return };
        let passed_s = now.saturating_duration_since(*since).as_secs_f64();
        if passed_s <= 0.0 {
            return;
        }
        *since = now;
        let window_s = match self.busy_s {
            busy_s if busy_s > 0.0 && self.begun > 0.0 => {
                (BEGUN_WINDOW * busy_s / self.begun).clamp(WINDOW_MIN_S, WINDOW_MAX_S)
            }
            _ => WINDOW_MAX_S,
        };
        let keep = (-passed_s / window_s).exp();
        self.begun *= keep;
        self.fade(keep);
        self.busy_s = self.busy_s * keep + window_s * (1.0 - keep);
    }

    fn fade(&mut self, keep: f64) {
        self.faded.0 *= keep;
        if self.faded.0 >= FADED_MIN {
            return;
        }
        let faded = std::mem::take(&mut self.faded).0;
        for class in &mut self.classes {
            class.all *= faded;
            class.by_tenant.values_mut().for_each(|count| *count *= faded);
            class.by_tenant.retain(|_, count| *count >= COUNT_MIN);
        }
    }
}

/// Share that a class gets by its turns, however much more urgent work there is:
/// [`WaitQueue::TURNS_MAX`].
///
/// [`WaitQueue::TURNS_MAX`]: crate::WaitQueue::TURNS_MAX
const TURNS_SHARE: f32 = 1.0 / 32.0;

/// Most tenants of a class that are counted apart; further ones count as other tenants.
const TENANTS_MAX: usize = 1_024;

/// Smallest common factor: below it the counts are multiplied out, so that the factor does not
/// become 0.
const FADED_MIN: f64 = 1e-9;

/// Least count of a tenant, in requests; a smaller one is dropped.
const COUNT_MIN: f64 = 0.01;

/// Length of the rate's window, in requests: the rate is as exact where a request takes a minute as
/// where it takes a millisecond.
const BEGUN_WINDOW: f64 = 64.0;

/// Shortest window in seconds, since replicas take requests in batches.
const WINDOW_MIN_S: f64 = 3.0;

/// Longest window in seconds, since replicas become slower and faster.
const WINDOW_MAX_S: f64 = 60.0;

/// Fewest requests that make a rate.
const BEGUN_MIN: f64 = 3.0;

/// Shortest busy time that makes a rate, in seconds: in less, a few requests that end together give
/// any rate.
const BUSY_MIN_S: f64 = 0.1;

/// Age at which a rate is no better than what the region reports.
const FORGET: Duration = Duration::from_secs(60);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_world::NOW;

    fn at(ms: u64) -> Instant {
        *NOW + Duration::from_millis(ms)
    }

    /// Returns a meter that saw a request begin every `gap_ms` while something waited.
    fn served(gap_ms: u64, span_ms: u64) -> ServiceRate {
        let mut meter = ServiceRate::default();
        meter.set_busy(at(0), true);
        (1..=span_ms / gap_ms).for_each(|step| meter.note(&Asker::default(), at(step * gap_ms)));
        meter
    }

    fn rate(meter: &ServiceRate, ms: u64) -> f32 {
        meter.rate_per_s(at(ms)).unwrap()
    }

    #[test]
    fn it_measures_fast_and_slow_queues() {
        for (gap_ms, span_ms) in [(1, 2_000), (10, 5_000), (500, 10_000), (5_000, 60_000)] {
            let measured = rate(&served(gap_ms, span_ms), span_ms);
            let expected = 1_000.0 / gap_ms as f32;
            assert!((measured / expected - 1.0).abs() < 0.1, "{measured} instead of {expected}");
        }
    }

    #[test]
    fn idle_time_counts_for_nothing_and_neither_does_what_begins_in_it() {
        let mut meter = served(10, 2_000);
        meter.set_busy(at(2_000), false);
        let before = rate(&meter, 2_000);
        (1..500).for_each(|step| meter.note(&Asker::default(), at(2_000 + step * 100)));
        assert_eq!(rate(&meter, 52_000), before);
        meter.set_busy(at(52_000), true);
        meter.note(&Asker::default(), at(52_010));
        assert!((rate(&meter, 52_010) / before - 1.0).abs() < 0.05);
    }

    #[test]
    fn it_follows_a_change_within_seconds() {
        let mut meter = served(10, 20_000);
        (0..150).for_each(|step| meter.note(&Asker::default(), at(20_000 + step * 40)));
        let after = rate(&meter, 26_000);
        assert!((23.0..40.0).contains(&after), "{after}");
    }

    #[test]
    fn it_falls_when_nothing_begins_any_more() {
        let meter = served(10, 5_000);
        assert!(rate(&meter, 8_000) < 60.0);
        assert!(rate(&meter, 35_000) < 10.0);
    }

    #[test]
    fn it_says_nothing_where_it_knows_nothing() {
        assert_eq!(ServiceRate::default().rate_per_s(at(5)), None);
        assert_eq!(served(1, 50).rate_per_s(at(50)), None, "too short");
        assert_eq!(served(1_000, 2_000).rate_per_s(at(2_000)), None, "too few");
        let mut meter = served(10, 2_000);
        meter.set_busy(at(2_000), false);
        meter.set_busy(at(3_000), false);
        assert!(meter.rate_per_s(at(62_000)).is_some());
        assert_eq!(meter.rate_per_s(at(62_001)), None, "too long ago");
    }
    #[test]
    fn what_is_left_for_a_tenant_is_what_others_do_not_take_or_its_share() {
        let mut meter = ServiceRate::default();
        meter.set_busy(at(0), true);
        let asker = |priority, tenant| Asker { priority, tenant, ..Asker::default() };
        // Of ten requests, three are of the first class; of the second, three of one tenant and
        // four of another.
        for step in 0..6_000 {
            let of = match step % 10 {
                0..3 => asker(0, 1),
                3..7 => asker(1, 2),
                _ => asker(1, 1),
            };
            meter.note(&of, at(step * 10));
        }
        let rate = |priority, tenant, share| {
            let rate = meter.rate_for(&asker(priority, tenant), share, at(60_000));
            rate.unwrap().round()
        };
        assert_eq!(rate(0, 1, 1.0), 100.0);
        assert_eq!([rate(1, 1, 0.1), rate(1, 1, 0.5), rate(1, 2, 0.5)], [30.0, 35.0, 40.0]);
        assert_eq!(rate(2, 1, 1.0), 3.0, "its turns");
    }

    #[test]
    fn counts_of_tenants_are_bounded_and_fade_without_end() {
        let mut meter = ServiceRate::default();
        meter.set_busy(at(0), true);
        for step in 0..5_000 {
            meter.note(&Asker { tenant: step, ..Asker::default() }, at(step));
        }
        assert_eq!(meter.classes[0].by_tenant.len(), TENANTS_MAX);
        for step in 0..3_000 {
            meter.note(&Asker { tenant: 7, ..Asker::default() }, at(5_000 + step * 100));
        }
        assert_eq!(meter.classes[0].by_tenant.len(), 1);
        let rate = meter.rate_for(&Asker { tenant: 8, ..Asker::default() }, 0.5, at(305_000));
        assert!((rate.unwrap() - 5.0).abs() < 0.2, "{rate:?}");
    }
}
