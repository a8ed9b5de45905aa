//! A queue that stays, as distinct from one that comes and goes.

use std::time::{Duration, Instant};

/// Follows what a replica reports of its queue, as `CoDel` follows the delay in a router: by the least of a
/// while, not by the mean. Newcomers always wait for the next step of the engine, and a burst waits
/// until it was read; both are gone in the next report, and neither is a reason to hold requests back.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct StandingQueue {
    /// First of the reports in a row with more than is allowed, and how many there were.
    first: Option<Instant>,
    reports: u32,
}

impl StandingQueue {
    /// Takes in a report; whether requests wait there for good.
    pub(super) fn is_standing(&mut self, queued: f32, allowed: f32, now: Instant) -> bool {
        if queued <= allowed {
            *self = Self::default();
            return false;
        }
        let first = *self.first.get_or_insert(now);
        self.reports = self.reports.saturating_add(1);
        self.reports >= REPORTS_MIN && now.saturating_duration_since(first) >= STANDS_AFTER
    }
}

/// Fewer say nothing of what was between them.
const REPORTS_MIN: u32 = 3;

/// Requests that wait for longer than that don't wait for a step.
const STANDS_AFTER: Duration = Duration::from_secs(1);
