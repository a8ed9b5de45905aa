//! What a counter showed some time ago.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// Records kept at most: with one every 25 ms the last 1.6 s, and reports older than the second of
/// silence after which a region is no candidate are of no use.
const RECORDS_MAX: usize = 64;

/// A counter that only grows, as it stood at moments of the recent past.
///
/// The count of requests sent to a region is recorded now and then; when a report arrives that was
/// made 120 ms ago, [`CountHistory::at`] says how many had been sent by then. The counter less that
/// is [`RegionReport::sent`], for every request until the next report, without any look-up.
///
/// [`RegionReport::sent`]: crate::RegionReport::sent
#[derive(Clone, Debug, Default)]
pub struct CountHistory {
    records: VecDeque<(Instant, u64)>,
}

impl CountHistory {
    /// An empty history: until the first record every moment has a count of 0.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Notes what the counter shows at `now`. Call it regularly, at least as often as reports come;
    /// of calls with a `now` before an earlier one nothing is kept.
    pub fn record(&mut self, now: Instant, count: u64) {
        if self.records.back().is_some_and(|&(last, _)| last > now) {
            return;
        }
        if self.records.len() == RECORDS_MAX {
            self.records.pop_front();
        }
        self.records.push_back((now, count));
    }

    /// What the counter showed at that moment: in a straight line between the records around it,
    /// and for moments before or after all of them as the nearest says.
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

/// What one node has sent to a region, and what of it has ended, as both stood in the recent past.
#[derive(Clone, Debug, Default)]
pub struct TrafficHistory {
    sent: CountHistory,
    ended: CountHistory,
}

impl TrafficHistory {
    /// Notes what both counters show at `now`.
    pub fn record(&mut self, now: Instant, sent: u64, ended: u64) {
        self.sent.record(now, sent);
        self.ended.record(now, ended);
    }

    /// What had been sent and had ended here of all that a report knows which was made `age` ago,
    /// over a path that takes `one_way`.
    ///
    /// What was sent a little before the report was made was still under way then; of what ended
    /// then, the news is still under way to here.
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
        // Made at 800 ms: sent by 750 ms, and the ends that were heard of by 850 ms.
        assert_eq!(history.known_to_report(at(1_000), age, one_way), (75, 42));
        let none = TrafficHistory::default();
        assert_eq!(none.known_to_report(at(1_000), age, one_way), (0, 0));
    }
}
