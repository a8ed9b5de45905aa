//! What changes from one decision to the next, handed in by the caller.

use std::fmt;
use std::time::Instant;

use spillway_types::{ReplicaSlot, Signals};

/// The signals about replicas that are as fresh as the decision itself.
///
/// The node backs it with atomics and one immutable table, the simulator with arrays. What a source
/// can't tell is unknown, by default.
pub trait Loads {
    /// Requests sent to the replica and not yet ended, as far as this process knows.
    ///
    /// The answer may differ between two calls within one decision.
    fn in_flight(&self, slot: ReplicaSlot) -> u32;

    /// Requests that this process may have in flight there now, beside
    /// [`Candidate::in_flight_max`]: its part of a limit that several nodes share.
    ///
    /// [`Candidate::in_flight_max`]: crate::Candidate::in_flight_max
    fn limit(&self, slot: ReplicaSlot) -> u32 {
        let _ = slot;
        u32::MAX
    }

    /// Requests ever sent to the replica by this process.
    ///
    /// Its difference from [`Signals::started_at`] is what was sent since the signals were put
    /// together. May differ between two calls within one decision.
    fn started(&self, slot: ReplicaSlot) -> u64 {
        let _ = slot;
        0
    }

    /// What is known of the replica's load beyond this process.
    fn signals(&self, slot: ReplicaSlot) -> Signals {
        let _ = slot;
        Signals::UNKNOWN
    }
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
