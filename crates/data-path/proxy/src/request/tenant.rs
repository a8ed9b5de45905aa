//! Tenant share of a request: its tenant's key, counts, and the facts that decide about slots.

use std::time::Instant;

use spillway_journey::{TenantKey, TenantSight, is_kept_away};
use spillway_prefix::PrefixHasher;
use spillway_request::prepared::Prepared;
use spillway_route::KeptShare;
use spillway_transport::coarse_clock;
use spillway_types::ReplicaSlot;
use spillway_view::{Replica, RouteGroup, TenantSlot, View, WaitKey};

use crate::request::dispatch::Dispatch;
use crate::request::queue::{tokens, whose};

/// Slots of a replica whose number of slots is unknown.
const PLACES_UNKNOWN: u32 = 32;

/// Returns the key under which a tenant is counted. Without a name, the client's address is the
/// key; `None` if many clients share the address.
pub(super) fn tenant_key(hasher: &PrefixHasher, prepared: &Prepared) -> Option<TenantKey> {
    let Prepared { inquiry, is_one_client, .. } = prepared;
    let hash = |key: &[u8]| hasher.hash_request_key(key);
    let tenant = match &inquiry.tenant {
        Some(tenant) => hash(tenant.as_str().as_bytes()),
        None if *is_one_client => hash(&whose(inquiry.client)),
        None => return None,
    };
    Some(TenantKey { tenant, class: inquiry.priority })
}

impl Dispatch<'_> {
    /// Notes a request of this tenant.
    pub(super) fn saw_tenant(&self) {
        if let (Some(tenant), Some(group)) = (self.tenant, self.group()) {
            let permille = self.prepared.route.spec.queue.tenant_room_permille;
            let size = || size(&self.view, group);
            group.memory.tenants.saw(tenant, coarse_clock::now(), permille, size);
        }
    }

    /// Counts this request as in flight for its tenant.
    pub(super) fn tenant_slot(&self) -> Option<TenantSlot> {
        let (tenant, group) = (self.tenant?, self.group()?);
        Some(TenantSlot::take(&group.memory, tenant, tokens(&self.prepared.inquiry)))
    }

    /// Passes a turn that is of no use to this tenant on to a request of another one.
    pub(super) fn pass_turn_on(&self) {
        let Some(key) = self.wait_key() else { return };
        let waiting = &self.worker.gateway.routing.waiting;
        waiting.wake_one_of(&key, |tenant, class| !is_kept_away(self, TenantKey { tenant, class }));
    }

    /// Returns the key of the queue in which the request may wait.
    fn wait_key(&self) -> Option<WaitKey> {
        let model = self.prepared.inquiry.model.as_ref()?;
        Some(WaitKey::of(&self.prepared.route.spec.name, model))
    }

    /// Returns the replicas that may serve the request; `None` if there are none.
    pub(super) fn group(&self) -> Option<&RouteGroup> {
        let pin = self.prepared.target.pin.as_ref();
        self.prepared.route.group_for(self.prepared.inquiry.model.as_ref(), pin).ok().flatten()
    }
}

impl TenantSight for Dispatch<'_> {
    fn tenant(&self) -> Option<TenantKey> {
        self.tenant
    }

    fn left_by(&self, tenant: TenantKey) -> Option<KeptShare> {
        Dispatch::group(self)?.memory.tenants.left_by(tenant)
    }

    fn kept_for(&self, tenant: TenantKey) -> Option<KeptShare> {
        Dispatch::group(self)?.memory.tenants.kept_for(tenant)
    }

    fn rests_until(&self, slot: ReplicaSlot, tenant: u64) -> Option<Instant> {
        self.view.replica(slot).tenant_rests().until(tenant)
    }

    fn tells_tenants_apart(&self) -> bool {
        let Some(group) = Dispatch::group(self) else { return false };
        let mut replicas = group.group.candidates().iter();
        group.memory.tenants.keeps_any()
            || replicas.any(|candidate| self.view.replica(candidate.slot).tenant_rests().is_any())
    }

    fn waiting_of(&self, is_counted: &dyn Fn(TenantKey) -> bool) -> Option<u32> {
        let key = self.wait_key()?;
        let waiting = &self.worker.gateway.routing.waiting;
        Some(waiting.of_tenants(&key, |tenant, class| is_counted(TenantKey { tenant, class })))
    }
}

/// Returns the number of slots of a group, and of its replicas.
fn size(view: &View, group: &RouteGroup) -> (u32, u32) {
    let candidates = group.group.candidates();
    let slots = |replica: &Replica| replica.spec().in_flight_max.min(replica.slots_for(true));
    let known = candidates.iter().map(|candidate| match slots(view.replica(candidate.slot)) {
        u32::MAX => PLACES_UNKNOWN,
        slots => slots,
    });
    let sum = known.fold(0, u32::saturating_add);
    (sum, u32::try_from(candidates.len()).unwrap_or(u32::MAX))
}
