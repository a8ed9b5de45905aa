//! Past values of a counter.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// Most records: with one every 25 ms, the last 1.6 s. Reports older than a second are useless,
/// since a region that is silent for so long is no candidate.
const RECORDS_MAX: usize = 64;

/// Recent past of a counter that only grows.
///
/// The count of requests sent to a region is recorded now and then. When a report arrives that was
/// made 120 ms ago, [`CountHistory::at`] returns how many had been sent by then. The difference
/// from the present count is [`RegionReport::sent`], for every request until the next report,
/// without a look-up.
///
/// [`RegionReport::sent`]: crate::RegionReport::sent
#[derive(Clone, Debug, Default)]
pub struct CountHistory {
    records: VecDeque<(Instant, u64)>,
}

impl CountHistory {
    /// Returns an empty history: until the first record the count is 0 at every moment.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Records the count at `now`. Call it regularly, at least as often as reports come; a call
    /// with a `now` before an earlier one is ignored.
    pub fn record(&mut self, now: Instant, count: u64) {
        // Threads may come in another order than their clocks were read.
        if self.records.back().is_some_and(|&(last, _)| last > now) {
            return;
        }
        if self.records.len() == RECORDS_MAX {
            self.records.pop_front();
        }
        self.records.push_back((now, count));
    }

    /// Returns the count at that moment: interpolated between the records around it, or the nearest
    /// record for moments before or after all records.
    #[must_use]
    pub fn at(&self, moment: Instant) -> u64 {
        let after = self.records.partition_point(|&(at, _)| at <= moment);
        let next = self.records.get(after);
        let Some(&(from, count)) = after.checked_sub(1).and_then(|before| self.records.get(before))
        else {
            return next.map_or(0, |&(_, count)| count);
        };
        let Some(&(to, grown)) = next else { return count };
        count + line(moment - from, to - from, grown.saturating_sub(count))
    }
}

/// Recent past of the requests that one node sent to a region, and of those that ended.
#[derive(Clone, Debug, Default)]
pub struct TrafficHistory {
    sent: CountHistory,
    ended: CountHistory,
}

impl TrafficHistory {
    /// Records both counts at `now`.
    pub fn record(&mut self, now: Instant, sent: u64, ended: u64) {
        self.sent.record(now, sent);
        self.ended.record(now, ended);
    }

    /// Returns the requests sent and the requests ended that a report knows of which was made `age`
    /// ago, over a path that takes `one_way`.
    ///
    /// A request sent shortly before the report was still in transit then. The news of a request
    /// that ended at that time is still in transit back.
    #[must_use]
    pub fn known_to_report(&self, now: Instant, age: Duration, one_way: Duration) -> (u64, u64) {
        let before = |span: Duration| now.checked_sub(span).unwrap_or(now);
        (self.sent.at(before(age + one_way)), self.ended.at(before(age) + one_way))
    }
}

fn line(passed: Duration, whole: Duration, growth: u64) -> u64 {
    (growth as f64 * (passed.as_secs_f64() / whole.as_secs_f64())) as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_world::NOW;

    fn at(ms: u64) -> Instant {
        *NOW + Duration::from_millis(ms)
    }

    #[test]
    fn it_says_what_was_counted_by_a_moment() {
        let mut history = CountHistory::new();
        assert_eq!(history.at(at(10)), 0);
        history.record(at(100), 7);
        history.record(at(200), 17);
        history.record(at(200), 18);
        history.record(at(300), 18);
        let counts = [0, 100, 150, 199, 200, 250, 300, 900].map(|ms| history.at(at(ms)));
        assert_eq!(counts, [7, 7, 12, 16, 18, 18, 18, 18]);
    }

    #[test]
    fn it_forgets_the_oldest_and_ignores_what_comes_late() {
        let mut history = CountHistory::new();
        (0..1_000).for_each(|step| history.record(at(step * 25), step));
        assert_eq!(history.records.len(), RECORDS_MAX);
        assert_eq!(history.at(at(0)), 1_000 - RECORDS_MAX as u64);
        history.record(at(10), 5_000);
        assert_eq!(history.at(at(1_000_000)), 999);
    }

    #[test]
    fn a_report_knows_what_had_arrived_and_what_had_ended_when_it_was_made() {
        let mut history = TrafficHistory::default();
        (0..=100).for_each(|step| history.record(at(step * 10), step, step / 2));
        let (age, one_way) = (Duration::from_millis(200), Duration::from_millis(50));
        // The report was made at 800 ms: it includes requests sent by 750 ms, and ends received by
        // 850 ms.
        assert_eq!(history.known_to_report(at(1_000), age, one_way), (75, 42));
        let none = TrafficHistory::default();
        assert_eq!(none.known_to_report(at(1_000), age, one_way), (0, 0));
    }
}
