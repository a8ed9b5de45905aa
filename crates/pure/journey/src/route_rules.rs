//! Rules of a route that a journey keeps to.

use std::time::Duration;

/// Rules of the route that the request takes now. They change when the request changes to a
/// stand-in model and when the configuration is reloaded.
#[derive(Clone, Copy, Debug)]
pub struct RouteRules {
    /// True if the route's policy reads the replicas' prefix caches.
    pub reads_caches: bool,
    /// Requests that may wait; 0 if none may.
    pub queue_count_max: usize,
    /// Longest wait, in milliseconds.
    pub wait_ms_max: u64,
    /// Longest wait for a replica that starts, in milliseconds, while none can serve; 0 for none.
    pub start_wait_ms: u64,
    /// Objective for the time to first token.
    pub slo: Option<Duration>,
    /// Share of healthy replicas, in thousandths, at or below which less urgent requests wait less.
    pub degraded_below_permille: u16,
}

impl RouteRules {
    /// Returns true if requests of the route may wait in this node.
    #[must_use]
    pub fn has_queue(&self) -> bool {
        self.queue_count_max > 0
    }
}
