//! Loads of a view's replicas, as routing policies read them.

use std::ops::{ControlFlow, RangeInclusive};
use std::sync::Arc;

use arc_swap::Guard;
use spillway_journey::{Room, RoomLoads, SlotSight};
use spillway_route::{Loads, Snapshot};
use spillway_types::{ReplicaSlot, Signals, Speed};
use spillway_upstream::Traffic;

use crate::knowledge::Cached;
use crate::replica::Replica;
use crate::replica_loads::ReplicaLoads;
use crate::view::View;

/// Slots of a replica for one kind of traffic.
#[derive(Clone, Copy, Debug)]
pub struct TrafficSlots<'r> {
    /// The replica.
    pub replica: &'r Replica,
    /// Kind of traffic.
    pub traffic: Traffic,
}

impl SlotSight for TrafficSlots<'_> {
    fn rests_for(&self, tenant: u64) -> bool {
        self.replica.tenant_rests().until(tenant).is_some()
    }

    fn has_guessed_limit(&self) -> bool {
        self.replica.has_guessed_limit()
    }

    fn has_loaded(&self, adapter: u64) -> bool {
        self.replica.loaded_adapters().has(adapter)
    }

    fn slots_for(&self, can_wait: bool) -> u32 {
        let slots = self.replica.slots_for(can_wait);
        match self.replica.connections().streams_free(self.traffic) {
            u32::MAX => slots,
            // Other requests in flight may have taken no stream.
            free => slots.min(self.replica.in_flight().saturating_add(free)),
        }
    }

    fn slots_for_guests(&self) -> u32 {
        self.replica.slots_for_guests()
    }
}

/// The loads of a view's replicas at the moment of a decision.
#[derive(Debug)]
pub struct LiveLoads<'v> {
    /// View whose replicas are meant.
    pub view: &'v View,
    /// Loads that gossip reported.
    pub replica_loads: Guard<Arc<ReplicaLoads>>,
    /// Cached blocks of the prompt to be routed.
    pub cached: Cached,
    /// Slots that count for this request.
    pub room: Room,
    /// Kind of traffic of this request.
    pub traffic: Traffic,
}

impl LiveLoads<'_> {
    fn slots(&self, slot: ReplicaSlot, cached_blocks: u32) -> u32 {
        let slots = TrafficSlots { replica: self.view.replica(slot), traffic: self.traffic };
        self.room.slots_with(&slots, slot, cached_blocks)
    }
}

impl RoomLoads for LiveLoads<'_> {
    fn set_room(&mut self, room: Room) {
        self.room = room;
    }
}

impl Loads for LiveLoads<'_> {
    fn in_flight(&self, slot: ReplicaSlot) -> u32 {
        self.view.replica(slot).in_flight()
    }

    fn elsewhere(&self, slot: ReplicaSlot) -> u32 {
        self.view.replica(slot).elsewhere()
    }

    fn limit(&self, slot: ReplicaSlot) -> u32 {
        self.slots(slot, self.cached_blocks(slot))
    }

    fn started(&self, slot: ReplicaSlot) -> u64 {
        self.view.replica(slot).started()
    }

    fn signals(&self, slot: ReplicaSlot) -> Signals {
        self.replica_loads.signals(slot)
    }

    fn cached_blocks(&self, slot: ReplicaSlot) -> u32 {
        self.cached.blocks(self.view.replica(slot).holder())
    }

    fn cached_blocks_max(&self) -> u32 {
        self.cached.longest()
    }

    fn visit_cached(
        &self,
        blocks: RangeInclusive<u32>,
        visit: &mut dyn FnMut(ReplicaSlot) -> ControlFlow<()>,
    ) -> bool {
        // The board is a moment old: a replica that came since is passed over until the next one.
        if self.replica_loads.has_holders() {
            let holders = self.cached.holders(blocks);
            let mut slots = holders.filter_map(|holder| self.replica_loads.slot_of(holder));
            let _ = slots.try_for_each(visit);
        }
        self.replica_loads.has_holders()
    }

    fn pending_tokens(&self, slot: ReplicaSlot) -> u32 {
        pending_tokens(self.view.replica(slot))
    }

    fn context_tokens(&self, slot: ReplicaSlot) -> u32 {
        self.view.replica(slot).context_tokens()
    }

    fn speed(&self, slot: ReplicaSlot) -> Speed {
        self.replica_loads.speed(slot)
    }

    fn snapshot(&self, slot: ReplicaSlot) -> Snapshot {
        let replica = self.view.replica(slot);
        let cached_blocks = self.cached.blocks(replica.holder());
        Snapshot {
            in_flight: replica.in_flight(),
            elsewhere: replica.elsewhere(),
            limit: self.slots(slot, cached_blocks),
            cached_blocks,
            pending_tokens: pending_tokens(replica),
            context_tokens: replica.context_tokens(),
            signals: self.replica_loads.signals(slot),
            speed: self.replica_loads.speed(slot),
        }
    }
}

/// Returns the prompt tokens that a replica has still to read, for all nodes of the region.
fn pending_tokens(replica: &Replica) -> u32 {
    replica.pending_tokens().saturating_add(replica.pending_elsewhere())
}
