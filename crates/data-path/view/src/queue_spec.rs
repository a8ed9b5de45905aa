//! Limits of queues: waiting time, deadlines, load shedding.

use std::time::Duration;

use spillway_route::WaitLimits;

/// Queue of a route: its limits, and the rules of load shedding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueueSpec {
    /// Limits of the queue of each of the route's models.
    pub limits: WaitLimits,
    /// Longest wait of a request that no replica can serve, for one that starts, in milliseconds; 0
    /// for none.
    pub start_wait_ms: u64,
    /// Longest useful time from a request's head to the first byte of its reply; a request that
    /// cannot make it is refused at once. `None` leaves that to deadlines.
    pub slo: Option<Duration>,
    /// Share of the replicas' weight, in thousandths, below which the least urgent classes are
    /// refused first; 0 never does.
    pub degraded_below_permille: u16,
    /// Most of the slots, in thousandths, that a tenant above its share leaves free for others; 0
    /// leaves none.
    pub tenant_room_permille: u16,
}

/// Limits of all queues of a node together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WaitTotals {
    /// Most requests that wait. Each holds a connection of its client, so choose less than
    /// `connections_max`.
    pub count_max: usize,
    /// Most bytes that waiting requests hold together. Choose less than the limit of all request
    /// bodies, or waiting requests could keep out those that need not wait.
    pub bytes_max: usize,
}

impl Default for QueueSpec {
    fn default() -> Self {
        Self {
            limits: WaitLimits::default(),
            start_wait_ms: 0,
            slo: None,
            // With half of the replicas gone even full use of the rest serves half of the traffic.
            degraded_below_permille: 500,
            tenant_room_permille: 250,
        }
    }
}

impl Default for WaitTotals {
    fn default() -> Self {
        Self { count_max: 10_000, bytes_max: 256 << 20 }
    }
}
