//! Slots at replicas that a request may count with.

use spillway_types::ReplicaSlot;

use crate::tenant_share::KeptSlots;

/// Slots at replicas that a request may count with.
#[derive(Clone, Copy, Debug)]
pub struct Room {
    /// True if the request can wait in this node until a slot comes free.
    pub can_wait: bool,
    /// True if the request comes from another region. A replica whose limit is still being learned
    /// takes guests at the pace at which it begins replies.
    pub is_guest: bool,
    /// True if a limit that is still being learned does not hold the request back.
    pub is_past_guesses: bool,
    /// Slots that the request's tenant, which has much, leaves to others.
    pub kept: Option<KeptSlots>,
    /// First replica of those that others leave to the tenant; only this and later ones count.
    pub first: Option<ReplicaSlot>,
    /// Bound of the replicas that have the request's adapter in memory: only these count.
    pub adapter: Option<AdapterRoom>,
    /// Hash of the tenant, for replicas that have asked it to stay away.
    pub tenant: Option<u64>,
    /// Blocks of half of the prompt, rounded up; 0 if the prompt is not known. No learned limit holds
    /// the request back from a replica that has as many cached.
    pub half_blocks: u32,
}

/// Slots at the replicas that have an adapter in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AdapterRoom {
    /// Identity of the adapter.
    pub adapter: u64,
    /// Most requests of this process in flight at such a replica. Beyond, another one loads the
    /// adapter too.
    pub in_flight_max: u32,
}

impl AdapterRoom {
    /// Requests that a replica may have in flight whatever the others have: a small batch is as fast
    /// as a single request.
    const BATCH: u32 = 4;

    /// Returns the room at replicas with this adapter, where all of a group's replicas have these
    /// requests in flight. Twice the mean is the bound, so that one popular adapter does not overload
    /// its replica beside idle ones.
    #[must_use]
    pub fn among(adapter: u64, in_flight: impl Iterator<Item = u32>) -> Self {
        let (count, sum) =
            in_flight.fold((0_u64, 0_u64), |(count, sum), one| (count + 1, sum + u64::from(one)));
        let bound = (2 * sum).checked_div(count).unwrap_or(0);
        let in_flight_max = u32::try_from(bound).unwrap_or(u32::MAX).saturating_add(Self::BATCH);
        Self { adapter, in_flight_max }
    }
}

/// Facts about the slots of one replica.
pub trait SlotSight {
    /// Returns true if the replica has asked this tenant to stay away for now.
    fn rests_for(&self, tenant: u64) -> bool;

    /// Returns true if the limit of the replica's requests in flight is still being learned.
    fn has_guessed_limit(&self) -> bool;

    /// Returns true if the replica has this adapter in memory.
    fn has_loaded(&self, adapter: u64) -> bool;

    /// Returns the requests in flight that this node may have there. `can_wait`: the request waits
    /// here otherwise, and is not refused.
    fn slots_for(&self, can_wait: bool) -> u32;

    /// Returns the requests in flight at which the replica takes no more guests for now; `u32::MAX` if
    /// guests are bound by nothing else than other requests.
    fn slots_for_guests(&self) -> u32;
}

impl Room {
    /// Room of a request that waits nowhere, and leaves nothing to others.
    pub const UNBOUND: Self = Self {
        can_wait: false,
        is_guest: false,
        is_past_guesses: true,
        kept: None,
        first: None,
        adapter: None,
        tenant: None,
        half_blocks: 0,
    };

    /// Returns the requests of this node that a replica may have in flight, as far as this request
    /// is concerned, if nothing of its prompt is cached there.
    #[must_use]
    pub fn slots(&self, replica: &impl SlotSight, slot: ReplicaSlot) -> u32 {
        self.slots_with(replica, slot, 0)
    }

    /// Returns the requests of this node that a replica may have in flight, as far as this request
    /// is concerned, of whose prompt so many leading blocks are cached there.
    ///
    /// Half of the prompt is worth a wait in the replica. If the next free slot were taken
    /// instead, wherever it is, a queue here would spread each prompt over all replicas: they would
    /// serve less, so that the queue never ends. The total in flight stays within the learned
    /// limits, since a region without a free slot lets its requests wait.
    #[must_use]
    pub fn slots_with(
        &self,
        replica: &impl SlotSight,
        slot: ReplicaSlot,
        cached_blocks: u32,
    ) -> u32 {
        if self.first.is_some_and(|first| slot < first)
            || self.tenant.is_some_and(|tenant| replica.rests_for(tenant))
        {
            return 0;
        }
        let is_cached = self.half_blocks > 0 && cached_blocks >= self.half_blocks;
        let is_past = is_cached || self.is_past_guesses && replica.has_guessed_limit();
        let mut slots = replica.slots_for(self.can_wait && !is_past);
        if self.is_guest {
            slots = slots.min(replica.slots_for_guests());
        }
        // A replica that has read half of the prompt with the adapter is worth more than one that
        // has only the adapter.
        if let Some(AdapterRoom { adapter, in_flight_max }) = self.adapter.filter(|_| !is_cached) {
            slots = if replica.has_loaded(adapter) { slots.min(in_flight_max) } else { 0 };
        }
        self.kept.map_or(slots, |kept| kept.slots_left(slot, slots))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tenant_share::tests::{candidates, share};

    struct FixedSlots;

    impl SlotSight for FixedSlots {
        fn rests_for(&self, tenant: u64) -> bool {
            tenant == 7
        }

        fn has_guessed_limit(&self) -> bool {
            true
        }

        fn has_loaded(&self, adapter: u64) -> bool {
            adapter == 3
        }

        fn slots_for(&self, can_wait: bool) -> u32 {
            if can_wait { 4 } else { 16 }
        }

        fn slots_for_guests(&self) -> u32 {
            3
        }
    }

    #[test]
    fn places_count_by_what_the_request_may_use() {
        let room = Room {
            can_wait: true,
            is_guest: false,
            is_past_guesses: false,
            kept: None,
            first: None,
            adapter: None,
            tenant: None,
            half_blocks: 3,
        };
        let slots = |room: Room| room.slots(&FixedSlots, ReplicaSlot(15));
        assert_eq!(slots(room), 4);
        assert_eq!(slots(Room { can_wait: false, ..room }), 16);
        assert_eq!(slots(Room { is_past_guesses: true, ..room }), 16);
        assert_eq!(slots(Room { is_guest: true, ..room }), 3);
        assert_eq!(slots(Room { tenant: Some(7), ..room }), 0, "it rests for that tenant");
        assert_eq!(slots(Room { tenant: Some(8), ..room }), 4);
        assert_eq!(slots(Room { first: Some(ReplicaSlot(20)), ..room }), 0);
        assert_eq!(slots(Room { first: Some(ReplicaSlot(15)), ..room }), 4);
        let kept = KeptSlots::of(share(), &candidates());
        assert_eq!(slots(Room { kept, can_wait: false, ..room }), 12);
    }

    #[test]
    fn a_learned_limit_holds_no_request_back_from_half_of_its_prompt() {
        let room = Room {
            can_wait: true,
            is_guest: false,
            is_past_guesses: false,
            kept: None,
            first: None,
            adapter: None,
            tenant: Some(8),
            half_blocks: 3,
        };
        let slots = |room: Room, cached| room.slots_with(&FixedSlots, ReplicaSlot(15), cached);
        assert_eq!([0, 2, 3, 6].map(|cached| slots(room, cached)), [4, 4, 16, 16]);
        // Of a prompt that is not known nothing is cached.
        assert_eq!(slots(Room { half_blocks: 0, ..room }, 0), 4);
        assert_eq!(slots(Room { tenant: Some(7), ..room }, 6), 0, "it rests for that tenant");
        let kept = KeptSlots::of(share(), &candidates());
        assert_eq!(slots(Room { kept, ..room }, 6), 12, "what is kept for others stays kept");
    }

    #[test]
    fn where_an_adapter_is_to_be_loaded_no_place_counts_unless_the_prompt_is_cached() {
        let among = |adapter| Room {
            adapter: Some(AdapterRoom { adapter, in_flight_max: 9 }),
            half_blocks: 3,
            ..Room::UNBOUND
        };
        let slots =
            |adapter, cached| among(adapter).slots_with(&FixedSlots, ReplicaSlot(15), cached);
        assert_eq!((slots(3, 0), slots(4, 0)), (9, 0));
        assert_eq!((slots(3, 3), slots(4, 3)), (16, 16));
    }

    #[test]
    fn replicas_with_an_adapter_carry_twice_as_much_as_the_mean() {
        let bound = |in_flight: &[u32]| AdapterRoom::among(1, in_flight.iter().copied());
        assert_eq!(bound(&[]).in_flight_max, 4);
        assert_eq!(bound(&[0, 0, 0]).in_flight_max, 4);
        assert_eq!(bound(&[12, 0, 0]).in_flight_max, 12);
        assert_eq!(bound(&[u32::MAX, u32::MAX]).in_flight_max, u32::MAX);
    }
}
