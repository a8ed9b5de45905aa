//! Places at replicas that a request may count with.

use spillway_types::ReplicaSlot;

use crate::tenant_share::KeptPlaces;

/// Places at replicas that a request may count with.
#[derive(Clone, Copy, Debug)]
pub struct Room {
    /// True if the request can wait in this node until a place comes free.
    pub can_wait: bool,
    /// True if a limit that is still being learned does not hold the request back.
    pub is_past_guesses: bool,
    /// Places that the request's tenant, which has much, leaves to others.
    pub kept: Option<KeptPlaces>,
    /// First replica of those that others leave to the tenant; only this and later ones count.
    pub first: Option<ReplicaSlot>,
    /// Hash of the tenant, for replicas that have asked it to stay away.
    pub tenant: Option<u64>,
}

/// Facts about the places of one replica.
pub trait PlaceSight {
    /// Returns true if the replica has asked this tenant to stay away for now.
    fn rests_for(&self, tenant: u64) -> bool;

    /// Returns true if the limit of the replica's requests in flight is still being learned.
    fn has_guessed_limit(&self) -> bool;

    /// Returns the requests in flight that this node may have there. `can_wait`: the request waits
    /// here otherwise, and is not refused.
    fn places_for(&self, can_wait: bool) -> u32;
}

impl Room {
    /// Returns the requests of this node that a replica may have in flight, as far as this request
    /// is concerned.
    #[must_use]
    pub fn places(self, replica: &impl PlaceSight, slot: ReplicaSlot) -> u32 {
        if self.first.is_some_and(|first| slot < first)
            || self.tenant.is_some_and(|tenant| replica.rests_for(tenant))
        {
            return 0;
        }
        let is_past = self.is_past_guesses && replica.has_guessed_limit();
        let places = replica.places_for(self.can_wait && !is_past);
        self.kept.map_or(places, |kept| kept.places_left(slot, places))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tenant_share::tests::{candidates, share};

    struct Places;

    impl PlaceSight for Places {
        fn rests_for(&self, tenant: u64) -> bool {
            tenant == 7
        }

        fn has_guessed_limit(&self) -> bool {
            true
        }

        fn places_for(&self, can_wait: bool) -> u32 {
            if can_wait { 4 } else { 16 }
        }
    }

    #[test]
    fn places_count_by_what_the_request_may_use() {
        let room =
            Room { can_wait: true, is_past_guesses: false, kept: None, first: None, tenant: None };
        let places = |room: Room| room.places(&Places, ReplicaSlot(15));
        assert_eq!(places(room), 4);
        assert_eq!(places(Room { can_wait: false, ..room }), 16);
        assert_eq!(places(Room { is_past_guesses: true, ..room }), 16);
        assert_eq!(places(Room { tenant: Some(7), ..room }), 0, "it rests for that tenant");
        assert_eq!(places(Room { tenant: Some(8), ..room }), 4);
        assert_eq!(places(Room { first: Some(ReplicaSlot(20)), ..room }), 0);
        assert_eq!(places(Room { first: Some(ReplicaSlot(15)), ..room }), 4);
        let kept = KeptPlaces::of(share(), &candidates());
        assert_eq!(places(Room { kept, can_wait: false, ..room }), 12);
    }
}
