//! How a route's requests wait, and when they are turned away.

use std::time::Duration;

use spillway_route::WaitLimits;

/// How a route's requests wait for a place, and when they are turned away instead.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueueSpec {
    /// Bounds on what waits, for each of the route's models.
    pub limits: WaitLimits,
    /// The time from a request's head to the first byte of its reply beyond which the reply is of no
    /// use; a request that can't make it is turned away at once. `None` leaves that to deadlines.
    pub slo: Option<Duration>,
    /// Part of the replicas' weight, in thousandths, below which the least urgent classes are turned
    /// away first; 0 never does.
    pub degraded_below_permille: u16,
    /// Part of the places, in thousandths, that a tenant which uses more than its part leaves to others
    /// at most; 0 leaves nothing.
    pub tenant_room_permille: u16,
}

/// Bounds on all queues of a node together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WaitTotals {
    /// Most requests. Each holds a connection of its client, so choose it below `connections_max`.
    pub count_max: usize,
    /// Most bytes that they hold together. Choose it below the bound on all request bodies, or waiting
    /// requests could keep those out that need not wait.
    pub bytes_max: usize,
}

impl Default for QueueSpec {
    fn default() -> Self {
        Self {
            limits: WaitLimits::default(),
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
