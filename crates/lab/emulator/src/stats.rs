//! Counters of a replica.

use serde::Serialize;
use spillway_engine::Stats;

use crate::ledger::RequestRecord;

/// Counters of a replica. `received` = `finished` + `aborted` + `rejected` + requests in flight.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ReplicaStats {
    /// Inference requests that arrived; health, metrics and control requests don't count.
    pub received: u64,
    /// Requests that the engine accepted or that were served without it.
    pub started: u64,
    /// Requests whose whole reply was handed to the connection.
    pub finished: u64,
    /// Requests whose client disconnected, or that a crash or cut ended.
    pub aborted: u64,
    /// Requests answered with an error.
    pub rejected: u64,
    /// Requests that carried an `Authorization` header.
    pub authorization_seen: u64,
    /// Requests in the engine's batch now.
    pub running: u32,
    /// Requests that wait in the engine now.
    pub waiting: u32,
    /// The engine's own counters, since its last crash.
    pub engine: Stats,
    /// The last requests, oldest first.
    pub last_requests: Vec<RequestRecord>,
}
