//! What changes from one decision to the next, handed in by the caller.

use std::fmt;
use std::time::Instant;

use spillway_types::ReplicaSlot;

/// The signals about replicas that are as fresh as the decision itself.
///
/// The node backs it with atomics, the simulator with an array. Later signals become further
/// methods with a default answer of "unknown", so that existing sources of load stay valid.
pub trait Loads {
    /// Requests sent to the replica and not yet ended, as far as this process knows.
    ///
    /// The answer may differ between two calls within one decision.
    fn in_flight(&self, slot: ReplicaSlot) -> u32;
}

/// The circumstances of one decision.
pub struct Moment<'a> {
    /// The present.
    pub now: Instant,
    /// Load of every replica of the view.
    pub loads: &'a dyn Loads,
    /// Consecutive number of this decision within its group; policies with turns follow it.
    ///
    /// Start it at a random number: nodes that all start at 0 would take the same turns.
    pub ticket: u64,
    /// The only source of chance; the same seed gives the same decision.
    pub rng: &'a mut fastrand::Rng,
}

impl fmt::Debug for Moment<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Moment")
            .field("now", &self.now)
            .field("ticket", &self.ticket)
            .finish_non_exhaustive()
    }
}
