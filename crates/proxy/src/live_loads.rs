//! A view's replicas as policies see them.

use std::sync::Arc;

use arc_swap::Guard;
use spillway_route::{Loads, Snapshot};
use spillway_types::{ReplicaSlot, Signals, Speed};

use crate::board::Board;
use crate::knowledge::Cached;
use crate::view::View;

/// The loads of a view's replicas at the moment of a decision.
pub(crate) struct LiveLoads<'v> {
    pub(crate) view: &'v View,
    pub(crate) board: Guard<Arc<Board>>,
    /// What is cached of the prompt that is decided about.
    pub(crate) cached: Cached,
}

impl Loads for LiveLoads<'_> {
    fn in_flight(&self, slot: ReplicaSlot) -> u32 {
        self.view.replica(slot).in_flight()
    }

    fn elsewhere(&self, slot: ReplicaSlot) -> u32 {
        self.view.replica(slot).elsewhere()
    }

    fn limit(&self, slot: ReplicaSlot) -> u32 {
        self.view.replica(slot).places()
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
        self.view.replica(slot).pending_tokens()
    }

    fn speed(&self, slot: ReplicaSlot) -> Speed {
        self.board.speed(slot)
    }

    fn snapshot(&self, slot: ReplicaSlot) -> Snapshot {
        let replica = self.view.replica(slot);
        Snapshot {
            in_flight: replica.in_flight(),
            elsewhere: replica.elsewhere(),
            limit: replica.places(),
            cached_blocks: self.cached.blocks(replica.holder()),
            pending_tokens: replica.pending_tokens(),
            signals: self.board.signals(slot),
            speed: self.board.speed(slot),
        }
    }
}
