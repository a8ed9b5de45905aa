//! Reports of replicas about their requests, brought up to date.

use spillway_types::{Reading, Signals};

use crate::field::Field;
use crate::mean::Mean;

/// Reports of a group, for estimates of a replica's present work from an old report.
#[derive(Debug)]
pub(crate) struct Reports {
    /// Mean of the reported work.
    work: f32,
    /// Mean of the requests known to be in flight at the reports.
    in_flight: f32,
    /// Reported work per request that was known to be in flight, at least 1.
    work_per_request: f32,
}

impl Reports {
    /// Reads all reports once. `reported` selects the value.
    pub(crate) fn of(field: &Field<'_>, reported: impl Fn(&Signals) -> Reading) -> Self {
        let mut sums = ReportSums::default();
        for usable in field.all_usable() {
            let signals = field.signals(&usable);
            sums.add(reported(&signals), &signals);
        }
        sums.finish()
    }

    /// Returns the present work at a replica with `known` requests in flight: the reported work,
    /// plus the known change of requests in flight since, in proportion to the mean work per known
    /// request.
    ///
    /// In proportion, because gateways that don't send each other their requests saw the same
    /// report and send to the same replicas: if all have four times as much in flight as is known
    /// here, four requests went where one is known. If only its own requests count, eight gateways
    /// with reports every 100 ms all run to the replica that was free, and their p99 in the tests'
    /// closed loop is 234 ms instead of 120. The proportion also makes the unit of work irrelevant,
    /// be it requests or tokens.
    ///
    /// A replica without a report is taken to have the mean work for the mean in flight.
    #[inline]
    pub(crate) fn now(&self, known: f32, reading: Reading, signals: &Signals) -> f32 {
        let since = |before: f32| (known - before) * self.work_per_request;
        let value = (reading.value + since(signals.in_flight_at_report as f32)).max(0.0);
        let usual = (self.work + since(self.in_flight)).max(0.0);
        Reading { value, trust: reading.trust }.or(usual)
    }

    /// Returns the reported work, or the mean if there is no report.
    pub(crate) fn before(&self, reading: Reading) -> f32 {
        reading.or(self.work)
    }

    /// Returns the mean work for this many requests in flight.
    pub(crate) fn mean_now(&self, in_flight: f32) -> f32 {
        (self.work + (in_flight - self.in_flight) * self.work_per_request).max(0.0)
    }

    /// Returns the work that one more request adds.
    pub(crate) fn work_per_request(&self) -> f32 {
        self.work_per_request
    }
}

/// Sums from which [`Reports`] are made.
#[derive(Debug, Default)]
pub(crate) struct ReportSums {
    work: Mean,
    in_flight: Mean,
}

impl ReportSums {
    /// Adds the report of one replica.
    pub(crate) fn add(&mut self, reading: Reading, signals: &Signals) {
        self.work.add(reading);
        let value = signals.in_flight_at_report as f32;
        self.in_flight.add(Reading { value, trust: reading.trust });
    }

    pub(crate) fn finish(self) -> Reports {
        let (work, in_flight) = (self.work.or(0.0), self.in_flight.or(0.0));
        // A process with nothing in flight knows no ratio; each request it sends is at least one
        // request.
        let ratio = if in_flight > 0.0 { work / in_flight } else { 1.0 };
        Reports { work, in_flight, work_per_request: ratio.max(1.0) }
    }
}

/// Returns the requests that wait or run at a replica, from all its clients.
///
/// If one of the two counts is unknown, returns the other; if both are known, the trust is the
/// lesser of the two.
#[inline]
pub(crate) fn in_system(signals: &Signals) -> Reading {
    let Signals { queued, running, .. } = *signals;
    match (queued.is_known(), running.is_known()) {
        (true, true) => {
            Reading { value: queued.value + running.value, trust: queued.trust.min(running.trust) }
        }
        (true, false) => queued,
        _ => running,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_waits_and_what_runs_add_up_as_far_as_known() {
        let known = |value, trust| Reading { value, trust };
        let of = |queued, running| in_system(&Signals { queued, running, ..Signals::UNKNOWN });
        assert_eq!(of(known(3.0, 1.0), known(5.0, 0.5)), known(8.0, 0.5));
        assert_eq!(of(known(3.0, 0.9), Reading::UNKNOWN), known(3.0, 0.9));
        assert_eq!(of(Reading::UNKNOWN, known(5.0, 0.9)), known(5.0, 0.9));
        assert!(!of(Reading::UNKNOWN, Reading::UNKNOWN).is_known());
    }

    #[test]
    fn what_others_have_told_of_counts_like_what_was_sent_from_here() {
        let reading = Reading { value: 10.0, trust: 1.0 };
        let signals = Signals { in_flight_at_report: 10, ..Signals::UNKNOWN };
        let mut sums = ReportSums::default();
        sums.add(reading, &signals);
        let reports = sums.finish();
        let now = |known| reports.now(known, reading, &signals);
        let found = [2 + 8, 3 + 8, 2 + 11, 4].map(|known: u8| now(f32::from(known)));
        assert_eq!(found, [10.0, 11.0, 13.0, 4.0]);
    }
}
