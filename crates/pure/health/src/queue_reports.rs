//! Reports of one replica on its queue, as samples for its adaptive concurrency limit.

use std::time::{Duration, Instant};

use spillway_route::QueueSample;
use spillway_types::LoadReport;

/// Lifetime of a report on the queue, in multiples of the time since the report before, and at
/// least [`REPORT_COUNTS_MIN`]: a page that is late once does not make a server one without
/// reports.
const REPORT_COUNTS: u32 = 3;
const REPORT_COUNTS_MIN: Duration = Duration::from_secs(5);

/// Reports of one replica on its queue, of which the newest counts for a while.
#[derive(Clone, Copy, Debug, Default)]
pub struct QueueReports {
    newest: Option<QueueReport>,
}

#[derive(Clone, Copy, Debug)]
struct QueueReport {
    queued: f32,
    running: Option<f32>,
    kv_use: Option<f32>,
    at: Instant,
    /// Time since the report before.
    gap: Duration,
    is_new: bool,
}

impl QueueReports {
    /// Takes in a load report. One without a number of waiting requests changes nothing.
    pub fn handle_report(&mut self, at: Instant, report: &LoadReport) {
        let sound = |number: f32| number.is_finite() && number >= 0.0;
        let Some(queued) = report.queued.filter(|queued| sound(*queued)) else { return };
        let running = report.running.filter(|running| sound(*running));
        let kv_use = report.kv_use.filter(|share| sound(*share));
        let before = self.newest.map(|newest| at.saturating_duration_since(newest.at));
        let gap = before.unwrap_or_default();
        self.newest = Some(QueueReport { queued, running, kv_use, at, gap, is_new: true });
    }

    /// Takes the sample of the time since the last call; a report is new in one sample only.
    #[must_use]
    pub fn take_sample(&mut self, now: Instant) -> QueueSample {
        let Some(newest) = &mut self.newest else { return QueueSample::Untold };
        let counts = newest.gap.saturating_mul(REPORT_COUNTS).max(REPORT_COUNTS_MIN);
        let QueueReport { queued, running, kv_use, .. } = *newest;
        if now.saturating_duration_since(newest.at) > counts {
            self.newest = None;
            QueueSample::Untold
        } else if std::mem::take(&mut newest.is_new) {
            QueueSample::New { queued, running, kv_use }
        } else {
            QueueSample::Old
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_fleet::{ms, start};

    fn report(queued: f32) -> LoadReport {
        LoadReport { queued: Some(queued), ..LoadReport::default() }
    }

    #[test]
    fn a_report_is_new_once_and_counts_for_as_long_as_the_next_one_may_take() {
        let mut reports = QueueReports::default();
        let new = QueueSample::New { queued: 1.0, running: None, kv_use: None };
        assert_eq!(reports.take_sample(start()), QueueSample::Untold);
        reports.handle_report(start(), &report(1.0));
        assert_eq!(reports.take_sample(start()), new);
        assert_eq!(reports.take_sample(start()), QueueSample::Old);
        assert_eq!(reports.take_sample(start() + ms(5_000)), QueueSample::Old);
        reports.handle_report(start() + ms(6_000), &report(1.0));
        assert_eq!(reports.take_sample(start() + ms(24_000)), new);
        assert_eq!(reports.take_sample(start() + ms(24_001)), QueueSample::Untold);
    }

    #[test]
    fn a_number_that_is_no_load_is_no_report() {
        let mut reports = QueueReports::default();
        for nonsense in [f32::NAN, f32::INFINITY, -1.0] {
            reports.handle_report(start(), &report(nonsense));
        }
        reports.handle_report(start(), &LoadReport::default());
        assert_eq!(reports.take_sample(start()), QueueSample::Untold);
    }
}
