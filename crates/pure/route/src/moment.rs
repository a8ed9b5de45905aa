//! Facts that change from one decision to the next, passed in by the caller.

use std::fmt;
use std::ops::{ControlFlow, RangeInclusive};
use std::time::Instant;

use spillway_types::{ReplicaSlot, Signals, Speed};

/// Signals about replicas that are as fresh as the decision itself.
///
/// The node implements it with atomics and one immutable table, the simulator with arrays. By
/// default every signal but the first is unknown.
pub trait Loads {
    /// Returns the requests sent to the replica and not yet ended, as far as this process knows.
    ///
    /// The value may differ between two calls within one decision.
    fn in_flight(&self, slot: ReplicaSlot) -> u32;

    /// Returns the requests that other processes have in flight at the replica, by their last
    /// report.
    fn elsewhere(&self, slot: ReplicaSlot) -> u32 {
        let _ = slot;
        0
    }

    /// Returns the requests that this process may have in flight there now, in addition to
    /// [`Candidate::in_flight_max`]: its part of a limit that several nodes share.
    ///
    /// [`Candidate::in_flight_max`]: crate::Candidate::in_flight_max
    fn limit(&self, slot: ReplicaSlot) -> u32 {
        let _ = slot;
        u32::MAX
    }

    /// Returns the number of requests that this process ever sent to the replica.
    ///
    /// The difference from [`Signals::started_at`] is the number sent since the signals were
    /// collected. The value may differ between two calls within one decision.
    fn started(&self, slot: ReplicaSlot) -> u64 {
        let _ = slot;
        0
    }

    /// Returns what is known of the replica's load beyond this process.
    fn signals(&self, slot: ReplicaSlot) -> Signals {
        let _ = slot;
        Signals::UNKNOWN
    }

    /// Returns the leading blocks of this request's prompt that are expected in the replica's
    /// cache.
    fn cached_blocks(&self, slot: ReplicaSlot) -> u32 {
        let _ = slot;
        0
    }

    /// Returns the largest [`Loads::cached_blocks`] of any replica, or 0 if it is not known at
    /// once.
    ///
    /// With it, nodes with equal knowledge spread prompts that differ after those blocks in the
    /// same way.
    fn cached_blocks_max(&self) -> u32 {
        0
    }

    /// Calls `visit` with each replica whose [`Loads::cached_blocks`] are in this range, which lies
    /// above 0, until `visit` breaks. The order is the same each time.
    ///
    /// Returns false, without a call, if each replica would have to be looked at for that. The
    /// caller then does so.
    fn visit_cached(
        &self,
        blocks: RangeInclusive<u32>,
        visit: &mut dyn FnMut(ReplicaSlot) -> ControlFlow<()>,
    ) -> bool {
        let _ = (blocks, visit);
        false
    }

    /// Returns the prompt tokens that the replica still has to read: those not expected in its
    /// cache, of requests whose reply has not begun, sent by this process and by others as of their
    /// last report. The node counts them under policies that predict ([`Attempt::prediction`]), and
    /// returns 0 under all others.
    ///
    /// [`Attempt::prediction`]: crate::Attempt::prediction
    fn pending_tokens(&self, slot: ReplicaSlot) -> u32 {
        let _ = slot;
        0
    }

    /// Returns the prompt tokens of the requests that this process has in flight there: the context
    /// that each decode step reads. The node counts them under every policy, on routes that read
    /// prompts.
    fn context_tokens(&self, slot: ReplicaSlot) -> u32 {
        let _ = slot;
        0
    }

    /// Returns the measured speed of the replica.
    fn speed(&self, slot: ReplicaSlot) -> Speed {
        let _ = slot;
        Speed::UNKNOWN
    }

    /// Returns all of the above for one replica.
    ///
    /// Policies that read most of it ask once. Implement it where the replica has to be looked up
    /// for every answer.
    fn snapshot(&self, slot: ReplicaSlot) -> Snapshot {
        Snapshot {
            in_flight: self.in_flight(slot),
            elsewhere: self.elsewhere(slot),
            limit: self.limit(slot),
            cached_blocks: self.cached_blocks(slot),
            pending_tokens: self.pending_tokens(slot),
            context_tokens: self.context_tokens(slot),
            signals: self.signals(slot),
            speed: self.speed(slot),
        }
    }
}

/// All that [`Loads`] knows of one replica at one moment.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Snapshot {
    /// Requests of this process in flight; see [`Loads::in_flight`].
    pub in_flight: u32,
    /// Requests of other processes in flight; see [`Loads::elsewhere`].
    pub elsewhere: u32,
    /// Most requests of this process; see [`Loads::limit`].
    pub limit: u32,
    /// Leading blocks expected in the cache; see [`Loads::cached_blocks`].
    pub cached_blocks: u32,
    /// Tokens still to be read; see [`Loads::pending_tokens`].
    pub pending_tokens: u32,
    /// Tokens of context; see [`Loads::context_tokens`].
    pub context_tokens: u32,
    /// Load beyond this process; see [`Loads::signals`].
    pub signals: Signals,
    /// Measured speed; see [`Loads::speed`].
    pub speed: Speed,
}

impl Snapshot {
    /// Returns the requests in flight there, as far as known.
    #[inline]
    pub(crate) fn known(&self) -> f32 {
        self.in_flight as f32 + self.elsewhere as f32
    }

    /// Returns the tokens of context there: those of other processes' requests are taken to be as
    /// long as those of this one.
    #[inline]
    pub(crate) fn context(&self) -> f32 {
        let own = self.context_tokens as f32;
        if self.elsewhere == 0 || self.in_flight == 0 {
            return own;
        }
        own * self.known() / self.in_flight as f32
    }
}

/// The circumstances of one decision.
pub struct Moment<'a> {
    /// Present time.
    pub now: Instant,
    /// Load of every replica of the view.
    pub loads: &'a dyn Loads,
    /// Consecutive number of this decision within its group; policies with turns follow it.
    ///
    /// Start it at a random number: nodes that all start at 0 would take the same turns.
    pub ticket: u64,
    /// Only source of randomness; the same seed gives the same decision.
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
