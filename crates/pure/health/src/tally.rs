//! Results of one kind of check, made into a vote.

use std::time::{Duration, Instant};

use crate::CheckError;
use crate::verdict::Vote;

/// Periods without a result after which, with [`GRACE`] added, a check is silent.
const SILENT_AFTER_PERIODS: u32 = 5;
/// Addition for checks that take long themselves.
const GRACE: Duration = Duration::from_secs(10);

/// Results in a row that change the opinion.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Thresholds {
    pub(crate) rise: u32,
    pub(crate) fall: u32,
}

/// Counts of the results of one kind of check.
#[derive(Clone, Debug, Default)]
pub(crate) struct CheckTally {
    opinion: Opinion,
    goods: u32,
    bads: u32,
    at: Option<Instant>,
    last_fault: Option<(CheckError, Instant)>,
}

/// Opinion about the replica that follows from the results so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Opinion {
    // None => (Good | Bad)
    #[default]
    None,
    // Good => Bad
    Good,
    // Bad => Good
    Bad,
}

impl CheckTally {
    pub(crate) fn record(
        &mut self,
        now: Instant,
        result: Result<(), CheckError>,
        thresholds: Thresholds,
    ) {
        self.at = Some(now);
        match result {
            Ok(()) => {
                self.bads = 0;
                self.goods = self.goods.saturating_add(1);
                // Hysteresis: below the threshold the opinion stays.
                if self.goods >= thresholds.rise {
                    self.opinion = Opinion::Good;
                }
            }
            Err(fault) => {
                self.last_fault = Some((fault, now));
                self.goods = 0;
                self.bads = self.bads.saturating_add(1);
                if self.bads >= thresholds.fall {
                    self.opinion = Opinion::Bad;
                }
            }
        }
    }

    /// Returns the check's vote at `now`. `period` is the time between two checks, `None` if the
    /// replica has no such check.
    pub(crate) fn vote(&self, now: Instant, period: Option<Duration>, fall: u32) -> Vote {
        let (Some(period), Some(at)) = (period, self.at) else { return Vote::Silent };
        let silent_after = period.saturating_mul(SILENT_AFTER_PERIODS).saturating_add(GRACE);
        if now.saturating_duration_since(at) > silent_after {
            return Vote::Silent;
        }
        match self.opinion {
            Opinion::None => Vote::Silent,
            Opinion::Good => Vote::Good,
            Opinion::Bad => {
                let is_lasting = self.bads >= fall.saturating_mul(2);
                match (self.is_unanswered(), is_lasting) {
                    (true, false) => Vote::Unresponsive,
                    (true, true) => Vote::UnresponsiveForLong,
                    (false, false) => Vote::Bad,
                    (false, true) => Vote::BadForLong,
                }
            }
        }
    }

    /// Returns true if the newest fault was that no answer came.
    fn is_unanswered(&self) -> bool {
        self.last_fault.is_some_and(|(fault, _)| fault == CheckError::Timeout)
    }

    /// Returns true if the newest result was a fault.
    pub(crate) fn is_failing(&self) -> bool {
        self.bads > 0
    }

    /// Returns the newest fault while the opinion is bad and no good result followed it.
    pub(crate) fn standing_fault(&self) -> Option<CheckError> {
        let is_standing = self.opinion == Opinion::Bad && self.bads > 0;
        self.last_fault.filter(|_| is_standing).map(|(fault, _)| fault)
    }

    /// Returns the fault of the newest result; `None` if that was good.
    pub(crate) fn present_fault(&self) -> Option<CheckError> {
        self.last_fault.filter(|_| self.is_failing()).map(|(fault, _)| fault)
    }

    /// Returns the time of the newest result.
    pub(crate) fn at(&self) -> Option<Instant> {
        self.at
    }

    pub(crate) fn last_fault(&self) -> Option<(CheckError, Instant)> {
        self.last_fault
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_fleet::{ms, start};

    const THRESHOLDS: Thresholds = Thresholds { rise: 2, fall: 3 };
    const PERIOD: Option<Duration> = Some(Duration::from_secs(1));

    /// Returns the votes after each of `results`: `+` is good, `-` is bad, `.` is no answer.
    fn votes(results: &str) -> Vec<Vote> {
        let mut tally = CheckTally::default();
        let record = |result| {
            let result = match result {
                '+' => Ok(()),
                '.' => Err(CheckError::Timeout),
                _ => Err(CheckError::Unhealthy),
            };
            tally.record(start(), result, THRESHOLDS);
            tally.vote(start(), PERIOD, THRESHOLDS.fall)
        };
        results.chars().map(record).collect()
    }

    #[test]
    fn it_takes_rise_to_be_good_and_fall_to_be_bad() {
        use Vote::{Bad, BadForLong, Good, Silent};
        assert_eq!(votes("++"), [Silent, Good]);
        assert_eq!(votes("---"), [Silent, Silent, Bad]);
        assert_eq!(votes("++--+---+++")[2..], [Good, Good, Good, Good, Good, Bad, Bad, Good, Good]);
        assert_eq!(votes("-+-+-+").last(), Some(&Silent), "neither in a row, nothing is known");
        assert_eq!(votes("------")[3..], [Bad, Bad, BadForLong]);
    }

    #[test]
    fn checks_without_an_answer_are_silence_until_one_fails_otherwise() {
        use Vote::{Bad, BadForLong, Unresponsive, UnresponsiveForLong};
        let silent = [Unresponsive, Unresponsive, Unresponsive, UnresponsiveForLong];
        assert_eq!(votes("......")[2..], silent);
        assert_eq!(votes("...-.")[2..], [Unresponsive, Bad, Unresponsive]);
        assert_eq!(votes(".....-").last(), Some(&BadForLong));
    }

    #[test]
    fn a_check_that_stops_coming_falls_silent() {
        let mut tally = CheckTally::default();
        (0..2).for_each(|_| tally.record(start(), Ok(()), THRESHOLDS));
        assert_eq!(tally.vote(start() + ms(15_000), PERIOD, 3), Vote::Good);
        assert_eq!(tally.vote(start() + ms(15_001), PERIOD, 3), Vote::Silent);
        assert_eq!(tally.vote(start(), None, 3), Vote::Silent, "a check that was taken away");
    }

    #[test]
    fn the_standing_fault_is_the_newest_while_bad() {
        let mut tally = CheckTally::default();
        for _ in 0..2 {
            tally.record(start(), Err(CheckError::Timeout), THRESHOLDS);
        }
        assert_eq!(tally.standing_fault(), None);
        tally.record(start(), Err(CheckError::NotReady), THRESHOLDS);
        assert_eq!(tally.standing_fault(), Some(CheckError::NotReady));
        assert!(tally.is_failing());
        tally.record(start(), Ok(()), THRESHOLDS);
        assert_eq!(tally.standing_fault(), None);
        assert!(!tally.is_failing());
        assert_eq!(tally.last_fault(), Some((CheckError::NotReady, start())));
    }
}
