//! What changes from one decision to the next, handed in by the caller.

use std::fmt;
use std::time::Instant;

use spillway_types::{ReplicaSlot, Signals, Speed};

/// The signals about replicas that are as fresh as the decision itself.
///
/// The node backs it with atomics and one immutable table, the simulator with arrays. What a source
/// can't tell is unknown, by default.
pub trait Loads {
    /// Requests sent to the replica and not yet ended, as far as this process knows.
    ///
    /// The answer may differ between two calls within one decision.
    fn in_flight(&self, slot: ReplicaSlot) -> u32;

    /// The same of other processes that send to the replica, as far as they have told lately.
    fn elsewhere(&self, slot: ReplicaSlot) -> u32 {
        let _ = slot;
        0
    }

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

    /// Leading blocks of this request's prompt that are expected in the replica's cache.
    fn cached_blocks(&self, slot: ReplicaSlot) -> u32 {
        let _ = slot;
        0
    }

    /// The most that [`Loads::cached_blocks`] says of any replica, if that is known at once.
    ///
    /// With it, nodes that know the same spread prompts that part after it in the same way.
    fn cached_blocks_max(&self) -> u32 {
        0
    }

    /// Prompt tokens not expected in the replica's cache, of requests that this process and others,
    /// as far as they have told lately, have sent there and whose reply has not begun: what it still
    /// has to read. 0 where nobody counts them.
    fn pending_tokens(&self, slot: ReplicaSlot) -> u32 {
        let _ = slot;
        0
    }

    /// How fast the replica was seen to be.
    fn speed(&self, slot: ReplicaSlot) -> Speed {
        let _ = slot;
        Speed::UNKNOWN
    }

    /// All of the above for one replica.
    ///
    /// Policies that read most of it ask once. Write it out where the replica has to be looked up
    /// for every answer.
    fn snapshot(&self, slot: ReplicaSlot) -> Snapshot {
        Snapshot {
            in_flight: self.in_flight(slot),
            elsewhere: self.elsewhere(slot),
            limit: self.limit(slot),
            cached_blocks: self.cached_blocks(slot),
            pending_tokens: self.pending_tokens(slot),
            signals: self.signals(slot),
            speed: self.speed(slot),
        }
    }
}

/// What [`Loads`] knows of one replica at one moment.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Snapshot {
    /// See [`Loads::in_flight`].
    pub in_flight: u32,
    /// See [`Loads::elsewhere`].
    pub elsewhere: u32,
    /// See [`Loads::limit`].
    pub limit: u32,
    /// See [`Loads::cached_blocks`].
    pub cached_blocks: u32,
    /// See [`Loads::pending_tokens`].
    pub pending_tokens: u32,
    /// See [`Loads::signals`].
    pub signals: Signals,
    /// See [`Loads::speed`].
    pub speed: Speed,
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
