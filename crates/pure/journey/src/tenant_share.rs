//! Tenant share: slots that a tenant which uses much leaves to others, and turns that such a tenant
//! passes on.

use std::cmp::Ordering;
use std::time::Instant;

use spillway_route::{Candidate, KeptShare};
use spillway_types::ReplicaSlot;

use crate::sight::{ReplicaGroup, ReplicaSight};
use crate::standing::Position;

/// Key under which the requests of a tenant are counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TenantKey {
    /// Keyed hash of the tenant.
    pub tenant: u64,
    /// Class of the requests.
    pub class: u8,
}

/// Facts about tenants at the replicas that can serve the request. No method has a side effect.
pub trait TenantSight: ReplicaSight {
    /// Returns the key under which the request is counted; `None` if it is counted as no tenant's.
    fn tenant(&self) -> Option<TenantKey>;

    /// Returns the share that a tenant has to leave to others; `None` if it need not.
    fn left_by(&self, tenant: TenantKey) -> Option<KeptShare>;

    /// Returns the share that other tenants leave to this one; `None` if none use much, or this one
    /// does.
    fn kept_for(&self, tenant: TenantKey) -> Option<KeptShare>;

    /// Returns until when a replica has asked a tenant to stay away; `None` if it has not.
    fn rests_until(&self, slot: ReplicaSlot, tenant: u64) -> Option<Instant>;

    /// Returns false if all tenants may use the same slots: none leaves any to others, and no
    /// replica has asked one to stay away.
    fn tells_tenants_apart(&self) -> bool;

    /// Returns how many requests of these tenants wait in the queue of the request's model; `None`
    /// for a request without a model, which has no queue.
    fn waiting_of(&self, is_counted: &dyn Fn(TenantKey) -> bool) -> Option<u32>;
}

/// Slots of a group that are kept from a tenant which has much.
#[derive(Clone, Copy, Debug)]
pub struct KeptSlots {
    share: KeptShare,
    /// Last replica at which the tenant may use slots.
    last: ReplicaSlot,
}

impl KeptSlots {
    /// Returns the slots kept of these candidates, which are in the order of their slots; `None`
    /// if no replica is left to the tenant.
    #[must_use]
    pub fn of(share: KeptShare, candidates: &[Candidate]) -> Option<Self> {
        let last = candidates.len().checked_sub(share.whole() + 1)?;
        Some(Self { share, last: candidates[last].slot })
    }

    /// Returns how many of so many slots the tenant may use at a replica.
    #[must_use]
    pub fn slots_left(&self, slot: ReplicaSlot, slots: u32) -> u32 {
        match slot.cmp(&self.last) {
            Ordering::Less => slots,
            Ordering::Equal => self.share.left_of_part(slots),
            Ordering::Greater => 0,
        }
    }
}

/// Returns true if a tenant could not take any free slot: it leaves slots to others, or all
/// replicas have asked it to stay away.
#[must_use]
pub fn is_kept_away<S: TenantSight>(sight: &S, tenant: TenantKey) -> bool {
    sight.left_by(tenant).is_some() || rests_everywhere(sight, tenant)
}

/// Returns the slots that the request's tenant, which uses much, leaves to others.
pub(crate) fn kept_from<S: TenantSight>(sight: &S) -> Option<KeptSlots> {
    let share = sight.left_by(sight.tenant()?)?;
    KeptSlots::of(share, sight.group()?.group.candidates())
}

/// Returns the first replica with slots that others leave to the request's tenant, as a whole or
/// in part.
pub(crate) fn first_kept_for<S: TenantSight>(sight: &S) -> Option<ReplicaSlot> {
    let share = sight.kept_for(sight.tenant()?)?;
    let candidates = sight.group()?.group.candidates();
    let first = candidates.len().checked_sub(share.touched())?;
    candidates.get(first).map(|candidate| candidate.slot)
}

/// Returns when the first of the replicas may be asked, if all have asked a tenant to stay away.
pub(crate) fn all_rest_until<S: TenantSight>(
    sight: &S,
    candidates: &[Candidate],
    tenant: u64,
) -> Option<Instant> {
    let mut soonest: Option<Instant> = None;
    for candidate in candidates {
        let until = sight.rests_until(candidate.slot, tenant)?;
        soonest = Some(soonest.map_or(until, |soonest| soonest.min(until)));
    }
    soonest
}

/// Returns how many of the `ahead` requests before this one could take the slot that it would take:
/// a tenant that uses much waits for slots that are not kept from it. `position` is that of the
/// request itself.
pub(crate) fn rivals<S: TenantSight>(sight: &S, ahead: u32, position: Position) -> u32 {
    if ahead == 0 || !sight.tells_tenants_apart() || kept_from(sight).is_some() {
        return ahead;
    }
    let Some(rivals) = sight.waiting_of(&|tenant| !is_kept_away(sight, tenant)) else {
        return ahead;
    };
    ahead.min(rivals.saturating_sub(u32::from(position == Position::Queued)))
}

/// Returns true if a turn without a slot is of use to another tenant: the free slots are kept
/// from this one.
pub(crate) fn passes_turn_on<S: TenantSight>(sight: &S) -> bool {
    kept_from(sight).is_some() || sight.tenant().is_some_and(|key| rests_everywhere(sight, key))
}

/// Returns true if all replicas have asked a tenant to stay away.
fn rests_everywhere<S: TenantSight>(sight: &S, key: TenantKey) -> bool {
    let until =
        |group: ReplicaGroup<'_>| all_rest_until(sight, group.group.candidates(), key.tenant);
    sight.group().and_then(until).is_some()
}

#[cfg(test)]
pub(crate) mod tests {
    use spillway_route::{TenantShares, TenantUse};

    use super::*;

    /// Ten replicas with 16 slots each.
    pub(crate) fn candidates() -> Vec<Candidate> {
        let candidate = |slot| Candidate {
            slot: ReplicaSlot(slot),
            identity: 0,
            weight: 1,
            ramp_permille: 1_000,
            in_flight_max: 16,
        };
        [1, 3, 4, 6, 7, 9, 10, 11, 15, 20].map(candidate).into()
    }

    /// Twenty slots of ten replicas with 16 each: one replica and a quarter of another.
    pub(crate) fn share() -> KeptShare {
        let uses =
            [100, 10].map(|requests| TenantUse { requests, tokens: 0, requests_max: requests });
        let uses = uses.map(|used| (2, used));
        TenantShares::judge(&uses, 160, 10, 250).left_by(2, &uses[0].1).unwrap()
    }

    #[test]
    fn the_last_replicas_are_kept() {
        let candidates = candidates();
        let kept = KeptSlots::of(share(), &candidates).unwrap();
        let left = [1, 11, 15, 20].map(|slot| kept.slots_left(ReplicaSlot(slot), 16));
        assert_eq!(left, [16, 16, 12, 0]);
        assert!(
            KeptSlots::of(share(), &candidates[..1]).is_none(),
            "with one left it may use that"
        );
    }
}
