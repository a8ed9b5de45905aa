//! Reports of one region at another: on their way, and known.

use std::collections::VecDeque;

use super::node::RegionNews;
use crate::Time;

/// Silence in milliseconds after which gateways ask a region no more: the default of `pulse`.
const SILENCE_MS: f64 = 900.0;
/// Reports that a region sends in that time at least. Where reports are rarer than the gateway's,
/// regions may be silent for longer.
const REPORTS: f64 = 9.0;

/// Report of a region.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Report {
    pub(super) news: RegionNews,
    /// Moment at which it was made.
    pub(super) made: Time,
    /// Moment at which it arrives.
    pub(super) arrives: Time,
    /// True if its sender heard the receiver lately.
    pub(super) hears: bool,
}

/// Reports of one region at another, oldest first: the last one that has arrived, and those that
/// are on their way.
#[derive(Clone, Debug, Default)]
pub(super) struct Heard(VecDeque<Report>);

impl Heard {
    /// Takes in a report that is on its way.
    pub(super) fn send(&mut self, report: Report, now: Time) {
        while self.0.get(1).is_some_and(|next| next.arrives <= now) {
            self.0.pop_front();
        }
        // After a slow path became quick, reports overtake others: the older ones count no more.
        while self.0.back().is_some_and(|last| last.arrives > report.arrives) {
            self.0.pop_back();
        }
        self.0.push_back(report);
    }

    /// Returns the last report that has arrived.
    pub(super) fn last(&self, now: Time) -> Option<&Report> {
        self.0.iter().rev().find(|report| report.arrives <= now)
    }

    /// Returns true if the region was heard in this time.
    pub(super) fn is_heard(&self, now: Time, silence_us: u64) -> bool {
        self.last(now).is_some_and(|report| now < report.arrives.after_us(silence_us))
    }

    /// Returns the last report if the region was heard in this time, and said that it hears us.
    pub(super) fn reached(&self, now: Time, silence_us: u64) -> Option<&Report> {
        self.last(now).filter(|report| report.hears && now < report.arrives.after_us(silence_us))
    }
}

/// Returns the microseconds of silence after which a region is asked no more, if regions report
/// once in so many milliseconds.
pub(super) fn silence_us(report_ms: f64) -> u64 {
    (SILENCE_MS.max(REPORTS * report_ms) * 1e3) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(made: u64, arrives: u64) -> Report {
        let (made, arrives) = (Time(made), Time(arrives));
        Report { news: RegionNews::default(), made, arrives, hears: true }
    }

    #[test]
    fn a_report_is_known_once_it_has_arrived_until_the_next_one_has() {
        let mut heard = Heard::default();
        assert_eq!(heard.last(Time(0)), None);
        for made in [0, 100, 200, 300] {
            heard.send(report(made, made + 150), Time(made));
        }
        let made = |now: u64| heard.last(Time(now)).map(|report| report.made.0);
        assert_eq!([300, 349, 350, 449, 450].map(made), [100, 100, 200, 200, 300].map(Some));
    }

    #[test]
    fn a_report_that_is_overtaken_counts_no_more() {
        let mut heard = Heard::default();
        heard.send(report(0, 1_000), Time(0));
        heard.send(report(100, 200), Time(100));
        assert_eq!(heard.last(Time(2_000)).map(|report| report.made), Some(Time(100)));
    }

    #[test]
    fn a_region_is_reached_until_it_was_silent_for_too_long_or_says_that_it_is_deaf() {
        let mut heard = Heard::default();
        heard.send(report(0, 10), Time(0));
        assert!(heard.reached(Time(909), 900).is_some() && heard.is_heard(Time(909), 900));
        assert!(heard.reached(Time(910), 900).is_none() && !heard.is_heard(Time(910), 900));
        heard.send(Report { hears: false, ..report(920, 930) }, Time(920));
        assert!(heard.reached(Time(940), 900).is_none() && heard.is_heard(Time(940), 900));
        assert_eq!([100.0, 1_000.0].map(silence_us), [900_000, 9_000_000]);
    }
}
