//! Places at replicas that a request may count with.

use std::cmp::Ordering;

use spillway_route::{Candidate, KeptRoom};
use spillway_types::ReplicaSlot;

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

/// Places of a group that are kept from a tenant which has much.
#[derive(Clone, Copy, Debug)]
pub struct KeptPlaces {
    room: KeptRoom,
    /// Last replica at which the tenant may use places.
    last: ReplicaSlot,
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

impl KeptPlaces {
    /// Returns the places kept of these candidates, which are in the order of their slots; `None`
    /// if no replica is left to the tenant.
    #[must_use]
    pub fn of(room: KeptRoom, candidates: &[Candidate]) -> Option<Self> {
        let last = candidates.len().checked_sub(room.whole() + 1)?;
        Some(Self { room, last: candidates[last].slot })
    }

    /// Returns the first replica that is kept as a whole or in part.
    #[must_use]
    pub fn first(room: &KeptRoom, candidates: &[Candidate]) -> Option<ReplicaSlot> {
        let first = candidates.len().checked_sub(room.touched())?;
        candidates.get(first).map(|candidate| candidate.slot)
    }

    /// Returns how many of so many places the tenant may use at a replica.
    fn places_left(&self, slot: ReplicaSlot, places: u32) -> u32 {
        match slot.cmp(&self.last) {
            Ordering::Less => places,
            Ordering::Equal => self.room.left_of_part(places),
            Ordering::Greater => 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use spillway_route::{TenantRooms, TenantUse};

    use super::*;

    fn candidates() -> Vec<Candidate> {
        let candidate = |slot| Candidate {
            slot: ReplicaSlot(slot),
            identity: 0,
            weight: 1,
            ramp_permille: 1_000,
            in_flight_max: 16,
        };
        [1, 3, 4, 6, 7, 9, 10, 11, 15, 20].map(candidate).into()
    }

    /// Twenty places of ten replicas with 16 each: one replica and a quarter of another.
    fn room() -> KeptRoom {
        let uses =
            [100, 10].map(|requests| TenantUse { requests, tokens: 0, requests_max: requests });
        let uses = uses.map(|used| (2, used));
        TenantRooms::judge(&uses, 160, 10, 250).left_by(2, &uses[0].1).unwrap()
    }

    #[test]
    fn the_last_replicas_are_kept() {
        let candidates = candidates();
        let kept = KeptPlaces::of(room(), &candidates).unwrap();
        let left = [1, 11, 15, 20].map(|slot| kept.places_left(ReplicaSlot(slot), 16));
        assert_eq!(left, [16, 16, 12, 0]);
        assert_eq!(KeptPlaces::first(&room(), &candidates), Some(ReplicaSlot(15)));
        assert!(
            KeptPlaces::of(room(), &candidates[..1]).is_none(),
            "with one left it may use that"
        );
    }

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
        let kept = KeptPlaces::of(self::room(), &candidates());
        assert_eq!(places(Room { kept, can_wait: false, ..room }), 12);
    }
}
