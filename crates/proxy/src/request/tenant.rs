//! Places of a group that a request's tenant may use.

use std::time::Instant;

use spillway_journey::KeptPlaces;
use spillway_types::ReplicaSlot;

use crate::gateway::Gateway;
use crate::replica::Replica;
use crate::request::dispatch::Dispatch;
use crate::request::prepare::Prepared;
use crate::request::queue::{tokens, whose};
use crate::route_group::RouteGroup;
use crate::tenants::{TenantKey, TenantPlace};
use crate::view::View;

/// Places of a replica whose number of places is unknown.
const PLACES_UNKNOWN: u32 = 32;

/// Returns the key under which a tenant is counted. Without a name that is the client's address;
/// `None` if the address stands for many clients.
pub(super) fn tenant_key(gateway: &Gateway, prepared: &Prepared) -> Option<TenantKey> {
    let Prepared { inquiry, is_one_client, .. } = prepared;
    let hash = |key: &[u8]| gateway.key_hasher.hash_request_key(key);
    let tenant = match &inquiry.tenant {
        Some(tenant) => hash(tenant.as_str().as_bytes()),
        None if *is_one_client => hash(&whose(inquiry.client)),
        None => return None,
    };
    Some(TenantKey { tenant, class: inquiry.priority })
}

impl Dispatch<'_> {
    /// Returns when the first of a group's replicas may be asked again, if all have asked a tenant
    /// to stay away.
    fn rests_until(&self, group: &RouteGroup, tenant: u64) -> Option<Instant> {
        let mut soonest = None;
        for candidate in group.group.candidates() {
            let until = self.view.replica(candidate.slot).tenant_rests().until(tenant)?;
            soonest = Some(soonest.map_or(until, |soonest: Instant| soonest.min(until)));
        }
        soonest
    }

    /// Returns the first replica with places that others leave to this tenant.
    pub(super) fn first_kept_for_it(&self) -> Option<ReplicaSlot> {
        let (tenant, group) = (self.tenant?, self.group()?);
        let kept = group.memory.tenants.kept_for(tenant)?;
        KeptPlaces::first(&kept, group.group.candidates())
    }

    /// Notes a request of this tenant.
    pub(super) fn saw_tenant(&self) {
        if let (Some(tenant), Some(group)) = (self.tenant, self.group()) {
            let permille = self.prepared.route.spec.queue.tenant_room_permille;
            let size = || size(&self.view, group);
            group.memory.tenants.saw(tenant, Instant::now(), permille, size);
        }
    }

    /// Counts this request as in flight for its tenant.
    pub(super) fn tenant_place(&self) -> Option<TenantPlace> {
        let (tenant, group) = (self.tenant?, self.group()?);
        Some(TenantPlace::take(&group.memory, tenant, tokens(&self.prepared.inquiry)))
    }

    /// Returns how many of the `ahead` requests before this one could take the place that it would
    /// take: a tenant that has much waits for places that are not kept from it.
    pub(super) fn rivals(&self, ahead: u32, is_here: bool) -> u32 {
        let (Some(group), Some(model)) = (self.group(), &self.prepared.inquiry.model) else {
            return ahead;
        };
        let is_alike = || !group.memory.tenants.keeps_any() && !self.rests_any(group);
        if ahead == 0 || is_alike() || self.kept().is_some() {
            return ahead;
        }
        let key = crate::wait_queues::WaitKey::of(&self.prepared.route.spec.name, model);
        let rivals = self.worker.gateway.waiting.of_tenants(&key, |tenant, class| {
            !self.is_kept_away(group, TenantKey { tenant, class })
        });
        ahead.min(rivals.saturating_sub(u32::from(is_here)))
    }

    /// Passes the turn on to another tenant's request, if no place was free for this tenant.
    pub(super) fn pass_turn_on(&self) {
        let (Some(group), Some(model)) = (self.group(), &self.prepared.inquiry.model) else {
            return;
        };
        let rests = self.tenant.and_then(|key| self.rests_until(group, key.tenant));
        if self.kept().is_some() || rests.is_some() {
            let key = crate::wait_queues::WaitKey::of(&self.prepared.route.spec.name, model);
            let waiting = &self.worker.gateway.waiting;
            waiting.wake_one_of(&key, |tenant, class| {
                !self.is_kept_away(group, TenantKey { tenant, class })
            });
        }
    }

    /// Returns true if a tenant could not take a free place: it leaves the place to others, or all
    /// replicas have asked it to stay away.
    fn is_kept_away(&self, group: &RouteGroup, key: TenantKey) -> bool {
        group.memory.tenants.left_by(key).is_some() || self.rests_until(group, key.tenant).is_some()
    }

    /// Returns true if any replica may have asked a tenant to stay away.
    fn rests_any(&self, group: &RouteGroup) -> bool {
        let mut replicas = group.group.candidates().iter();
        replicas.any(|candidate| self.view.replica(candidate.slot).tenant_rests().is_any())
    }

    /// Returns the places that this tenant, which has much, leaves to others.
    pub(super) fn kept(&self) -> Option<KeptPlaces> {
        let (tenant, group) = (self.tenant?, self.group()?);
        let room = group.memory.tenants.left_by(tenant)?;
        KeptPlaces::of(room, group.group.candidates())
    }

    /// Returns the replicas that may serve the request; `None` if there are none.
    pub(super) fn group(&self) -> Option<&RouteGroup> {
        let pin = self.prepared.target.pin.as_ref();
        self.prepared.route.group_for(self.prepared.inquiry.model.as_ref(), pin).ok().flatten()
    }
}

/// Returns the number of places of a group, and of its replicas.
fn size(view: &View, group: &RouteGroup) -> (u32, u32) {
    let candidates = group.group.candidates();
    let places = |replica: &Replica| replica.spec().in_flight_max.min(replica.places_for(true));
    let known = candidates.iter().map(|candidate| match places(view.replica(candidate.slot)) {
        u32::MAX => PLACES_UNKNOWN,
        places => places,
    });
    let sum = known.fold(0, u32::saturating_add);
    (sum, u32::try_from(candidates.len()).unwrap_or(u32::MAX))
}
