//! Standing queue: one that stays, in contrast to one that comes and goes.

use std::time::{Duration, Instant};

/// Detector of a standing queue in a replica's reports. Like `CoDel` for the delay in a router, it
/// uses the minimum over a while instead of the mean. New requests always wait for the engine's
/// next step, and a burst waits until it was read. Both are gone in the next report, and neither is
/// a reason to hold requests back.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct StandingQueue {
    /// First of the reports in a row with more than is allowed, and their number.
    first: Option<Instant>,
    reports: u32,
}

impl StandingQueue {
    /// Takes in a report and returns true if there is a standing queue.
    pub(super) fn is_standing(&mut self, queued: f32, allowed: f32, now: Instant) -> bool {
        // A single report without a queue shows that it does not stand.
        if queued <= allowed {
            *self = Self::default();
            return false;
        }
        let first = *self.first.get_or_insert(now);
        self.reports = self.reports.saturating_add(1);
        self.reports >= REPORTS_MIN && now.saturating_duration_since(first) >= STANDS_AFTER
    }
}

/// Fewest reports in a row; fewer show nothing of the time between them.
const REPORTS_MIN: u32 = 3;

/// Age of a standing queue: requests that wait for longer don't wait for a step.
const STANDS_AFTER: Duration = Duration::from_secs(1);
