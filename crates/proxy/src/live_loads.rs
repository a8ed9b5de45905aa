//! A view's replicas as policies see them.

use std::sync::Arc;

use arc_swap::Guard;
use spillway_route::{Loads, Snapshot};
use spillway_types::{ReplicaSlot, Signals, Speed};

use crate::board::Board;
use crate::knowledge::Cached;
use crate::replica::Replica;
use crate::tenants::Kept;
use crate::view::View;

/// How many places a request may count with.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Room {
    /// It can wait in this node until a place comes free.
    pub(crate) can_wait: bool,
    /// A limit that is a guess does not hold it back.
    pub(crate) is_past_guesses: bool,
    /// Its tenant has much, and leaves this to others.
    pub(crate) kept: Option<Kept>,
    /// Only this replica and those after it count: what others leave to its tenant.
    pub(crate) first: Option<ReplicaSlot>,
    /// The hash of its tenant, for replicas that have asked that one alone to leave them alone.
    pub(crate) tenant: Option<u64>,
}

impl Room {
    /// Requests of this node that a replica may have, as far as this one is concerned.
    pub(crate) fn places(self, replica: &Replica, slot: ReplicaSlot) -> u32 {
        if self.first.is_some_and(|first| slot < first) {
            return 0;
        }
        if self.tenant.is_some_and(|tenant| replica.tenant_rests().until(tenant).is_some()) {
            return 0;
        }
        let is_past = self.is_past_guesses && !replica.crowd().is_found();
        let places = replica.places_for(self.can_wait && !is_past);
        self.kept.map_or(places, |kept| kept.places_left(slot, places))
    }
}

/// The loads of a view's replicas at the moment of a decision.
pub(crate) struct LiveLoads<'v> {
    pub(crate) view: &'v View,
    pub(crate) board: Guard<Arc<Board>>,
    /// What is cached of the prompt that is decided about.
    pub(crate) cached: Cached,
    /// What counts as a place.
    pub(crate) room: Room,
}

impl Loads for LiveLoads<'_> {
    fn in_flight(&self, slot: ReplicaSlot) -> u32 {
        self.view.replica(slot).in_flight()
    }

    fn elsewhere(&self, slot: ReplicaSlot) -> u32 {
        self.view.replica(slot).elsewhere()
    }

    fn limit(&self, slot: ReplicaSlot) -> u32 {
        self.room.places(self.view.replica(slot), slot)
    }

    fn started(&self, slot: ReplicaSlot) -> u64 {
        self.view.replica(slot).started()
    }

    fn signals(&self, slot: ReplicaSlot) -> Signals {
        self.board.signals(slot)
    }

    fn cached_blocks(&self, slot: ReplicaSlot) -> u32 {
        self.cached.blocks(self.view.replica(slot).holder())
    }

    fn cached_blocks_max(&self) -> u32 {
        self.cached.longest()
    }

    fn pending_tokens(&self, slot: ReplicaSlot) -> u32 {
        pending_tokens(self.view.replica(slot))
    }

    fn speed(&self, slot: ReplicaSlot) -> Speed {
        self.board.speed(slot)
    }

    fn snapshot(&self, slot: ReplicaSlot) -> Snapshot {
        let replica = self.view.replica(slot);
        Snapshot {
            in_flight: replica.in_flight(),
            elsewhere: replica.elsewhere(),
            limit: self.room.places(replica, slot),
            cached_blocks: self.cached.blocks(replica.holder()),
            pending_tokens: pending_tokens(replica),
            signals: self.board.signals(slot),
            speed: self.board.speed(slot),
        }
    }
}

/// What a replica has to read still, for all nodes of the region.
fn pending_tokens(replica: &Replica) -> u32 {
    replica.pending_tokens().saturating_add(replica.pending_elsewhere())
}
