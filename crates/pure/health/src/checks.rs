//! Results of all checks of one replica.

use std::time::Instant;

use spillway_types::LoadReport;

use crate::tally::{CheckTally, Thresholds};
use crate::verdict::Vote;
use crate::{Check, CheckError, MemberSpec};

/// Results of the checks of a replica.
#[derive(Clone, Debug, Default)]
pub(crate) struct Checks {
    pub(crate) active: CheckTally,
    pub(crate) deep: CheckTally,
    pub(crate) scrape: CheckTally,
    /// Memory use in load reports, which also counts as a deep check.
    memory: CheckTally,
}

impl Checks {
    /// Counts the result of a check. A check that the replica does not have is ignored.
    pub(crate) fn record(
        &mut self,
        now: Instant,
        check: Check,
        result: Result<(), CheckError>,
        spec: &MemberSpec,
    ) {
        let (tally, period) = match check {
            Check::Active => (&mut self.active, spec.checks.active),
            Check::Deep => (&mut self.deep, spec.checks.deep),
            Check::Scrape => (&mut self.scrape, spec.checks.scrape),
        };
        // A result may still come after a reload has removed its check.
        if period.is_some() {
            tally.record(now, result, thresholds(spec));
        }
    }

    /// Counts a report's memory use as a check, if memory has a limit.
    pub(crate) fn record_memory(&mut self, now: Instant, report: &LoadReport, spec: &MemberSpec) {
        if let (Some(used), Some(max)) = (report.gpu_memory_use, spec.health.gpu_memory_use_max) {
            let result = if used > max { Err(CheckError::MemoryFull) } else { Ok(()) };
            self.memory.record(now, result, thresholds(spec));
        }
    }

    pub(crate) fn active_vote(&self, now: Instant, spec: &MemberSpec) -> Vote {
        self.active.vote(now, spec.checks.active, spec.health.fall)
    }

    /// Returns the worse vote of the two: deep checks or memory use.
    pub(crate) fn deep_vote(&self, now: Instant, spec: &MemberSpec) -> Vote {
        let fall = spec.health.fall;
        let memory_period = spec.health.gpu_memory_use_max.map(|_| spec.report_period());
        self.deep.vote(now, spec.checks.deep, fall).max(self.memory.vote(now, memory_period, fall))
    }

    pub(crate) fn scrape_vote(&self, now: Instant, spec: &MemberSpec) -> Vote {
        self.scrape.vote(now, spec.checks.scrape, spec.health.fall)
    }
}

fn thresholds(spec: &MemberSpec) -> Thresholds {
    Thresholds { rise: spec.health.rise, fall: spec.health.fall }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_fleet::{ms, spec, start};

    fn memory(used: f32) -> LoadReport {
        LoadReport { gpu_memory_use: Some(used), ..LoadReport::default() }
    }

    #[test]
    fn memory_in_reports_counts_as_a_deep_check_if_there_is_a_limit() {
        let mut limited = spec("a");
        limited.health.gpu_memory_use_max = Some(0.9);
        limited.checks.deep = Some(ms(1_000));
        for (spec, vote) in [(limited, Vote::Bad), (spec("a"), Vote::Silent)] {
            let mut checks = Checks::default();
            (0..3).for_each(|_| checks.record_memory(start(), &memory(0.95), &spec));
            assert_eq!(checks.deep_vote(start(), &spec), vote);
        }
    }

    #[test]
    fn good_answers_do_not_hide_full_memory() {
        let mut spec = spec("a");
        spec.health.gpu_memory_use_max = Some(0.9);
        spec.checks.deep = Some(ms(1_000));
        let mut checks = Checks::default();
        for _ in 0..3 {
            checks.record_memory(start(), &memory(0.95), &spec);
            checks.record(start(), Check::Deep, Ok(()), &spec);
        }
        assert_eq!(checks.deep_vote(start(), &spec), Vote::Bad);
        (0..2).for_each(|_| checks.record_memory(start(), &memory(0.9), &spec));
        assert_eq!(checks.deep_vote(start(), &spec), Vote::Good);
    }

    #[test]
    fn results_of_checks_that_do_not_exist_say_nothing() {
        let mut spec = spec("a");
        spec.checks.scrape = None;
        let mut checks = Checks::default();
        (0..9).for_each(|_| {
            checks.record(start(), Check::Scrape, Err(CheckError::Timeout), &spec);
        });
        spec.checks.scrape = Some(ms(1_000));
        assert_eq!(checks.scrape_vote(start(), &spec), Vote::Silent);
    }

    #[test]
    fn each_check_has_a_vote_of_its_own() {
        let mut spec = spec("a");
        spec.checks.deep = Some(ms(1_000));
        spec.checks.scrape = Some(ms(1_000));
        let mut checks = Checks::default();
        for _ in 0..3 {
            checks.record(start(), Check::Active, Err(CheckError::Unhealthy), &spec);
            checks.record(start(), Check::Deep, Ok(()), &spec);
        }
        assert_eq!(checks.active_vote(start(), &spec), Vote::Bad);
        assert_eq!(checks.deep_vote(start(), &spec), Vote::Good);
        assert_eq!(checks.scrape_vote(start(), &spec), Vote::Silent);
    }
}
