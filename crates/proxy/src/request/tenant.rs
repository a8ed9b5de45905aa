//! What a request's tenant may use of a group's places.

use std::time::Instant;

use spillway_route::Candidate;

use crate::gateway::Gateway;
use crate::live_loads::Room;
use crate::replica::Replica;
use crate::request::dispatch::Dispatch;
use crate::request::prepare::Prepared;
use crate::request::queue::{tokens, whose};
use crate::route_group::RouteGroup;
use crate::tenants::{Kept, TenantKey, TenantPlace};
use crate::view::View;

/// How many places a replica counts for whose places nobody knows.
const PLACES_UNKNOWN: u32 = 32;

/// By which a tenant is counted. Without a name it is the client's address; `None` if that stands for many.
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
    /// Which places this request may count with.
    pub(super) fn room(&self) -> Room {
        let prepared = &*self.prepared;
        // Without a model, or tied to one replica, or on a route without a queue it would be refused.
        let has_queue = prepared.route.spec.queue.limits.count_max > 0;
        let is_free = prepared.inquiry.model.is_some() && prepared.pinned.is_none();
        let can_wait = is_free && has_queue;
        // What only one replica can serve is sent there, and gets its refusal from there.
        let tenant = self.tenant.filter(|_| prepared.pinned.is_none()).map(|key| key.tenant);
        let kept = if can_wait { self.kept() } else { None };
        // A guess moves no session and no hashed key.
        let has_home = prepared.inquiry.session.or(prepared.inquiry.affinity).is_some();
        let is_past_guesses = self.is_past_guesses || has_home;
        Room { can_wait, is_past_guesses, kept, first: None, tenant }
    }

    /// The places that are tried before all others; `None` if they are all the same to it.
    pub(super) fn room_kept_for_it(&self) -> Option<Room> {
        let (tenant, group) = (self.tenant?, self.group()?);
        let kept = group.memory.tenants.kept_for(tenant)?;
        let first = Kept::first(&kept, group.group.candidates());
        let room = self.room();
        (room.can_wait && first.is_some()).then_some(Room { first, ..room })
    }

    /// When the first of a group's replicas may be asked, if all have asked its tenant to leave them
    /// alone.
    pub(super) fn tenant_rests_until(&self, group: &RouteGroup) -> Option<Instant> {
        self.rests_until(group, self.tenant?.tenant)
    }

    fn rests_until(&self, group: &RouteGroup, tenant: u64) -> Option<Instant> {
        let mut soonest = None;
        for candidate in group.group.candidates() {
            let until = self.view.replica(candidate.slot).tenant_rests().until(tenant)?;
            soonest = Some(soonest.map_or(until, |soonest: Instant| soonest.min(until)));
        }
        soonest
    }

    /// Notes that its tenant is there.
    pub(super) fn saw_tenant(&self) {
        if let (Some(tenant), Some(group)) = (self.tenant, self.group()) {
            let permille = self.prepared.route.spec.queue.tenant_room_permille;
            let size = || size(&self.view, group);
            group.memory.tenants.saw(tenant, Instant::now(), permille, size);
        }
    }

    /// Counts its place as its tenant's.
    pub(super) fn tenant_place(&self) -> Option<TenantPlace> {
        let (tenant, group) = (self.tenant?, self.group()?);
        Some(TenantPlace::take(&group.memory, tenant, tokens(&self.prepared.inquiry)))
    }

    /// Of so many that wait before it, those that could take the place which it would: a tenant that has
    /// much waits for places that are not kept from it.
    pub(super) fn rivals(&self, ahead: u32, is_here: bool) -> u32 {
        let (Some(group), Some(model)) = (self.group(), &self.prepared.inquiry.model) else {
            return ahead;
        };
        let is_alike = || !group.memory.tenants.keeps_any() && !self.rests_any(group);
        if ahead == 0 || is_alike() || self.kept().is_some() {
            return ahead;
        }
        let key = crate::waiting::WaitKey::of(&self.prepared.route.spec.name, model);
        let rivals = self.worker.gateway.waiting.of_tenants(&key, |tenant, class| {
            !self.is_kept_away(group, TenantKey { tenant, class })
        });
        ahead.min(rivals.saturating_sub(u32::from(is_here)))
    }

    /// Its turn came, and there was nothing for its tenant: somebody else may find a place.
    pub(super) fn pass_turn_on(&self) {
        let (Some(group), Some(model)) = (self.group(), &self.prepared.inquiry.model) else {
            return;
        };
        let rests = self.tenant.and_then(|key| self.rests_until(group, key.tenant));
        if self.kept().is_some() || rests.is_some() {
            let key = crate::waiting::WaitKey::of(&self.prepared.route.spec.name, model);
            let waiting = &self.worker.gateway.waiting;
            waiting.wake_one_of(&key, |tenant, class| {
                !self.is_kept_away(group, TenantKey { tenant, class })
            });
        }
    }

    /// Whether a tenant could not take a place that came free now: it leaves it to others, or all
    /// replicas have asked it to leave them alone.
    fn is_kept_away(&self, group: &RouteGroup, key: TenantKey) -> bool {
        group.memory.tenants.left_by(key).is_some() || self.rests_until(group, key.tenant).is_some()
    }

    /// Whether any replica may have asked a tenant to leave it alone.
    fn rests_any(&self, group: &RouteGroup) -> bool {
        let mut replicas = group.group.candidates().iter();
        replicas.any(|candidate| self.view.replica(candidate.slot).tenant_rests().is_any())
    }

    /// What its tenant has to leave to others.
    fn kept(&self) -> Option<Kept> {
        let (tenant, group) = (self.tenant?, self.group()?);
        let room = group.memory.tenants.left_by(tenant)?;
        Kept::of(room, group.group.candidates())
    }

    /// Has limits that are guesses not hold the request back any more, if it is held back by one at a
    /// replica that says nothing waits there; returns whether. For one that would leave the region.
    pub(super) fn pass_guesses(&mut self) -> bool {
        if self.is_past_guesses {
            return false;
        }
        let candidates = self.group().map(|group| group.group.candidates());
        let board = self.view.board();
        let is_guess = |candidate: &Candidate| {
            let crowd = self.view.replica(candidate.slot).crowd();
            let is_limited = !crowd.is_found() && crowd.limit() != u32::MAX;
            is_limited && board.signals(candidate.slot).queued.or(1.0) < 1.0
        };
        self.is_past_guesses = candidates.is_some_and(|candidates| candidates.iter().any(is_guess));
        self.is_past_guesses
    }

    fn group(&self) -> Option<&RouteGroup> {
        let pin = self.prepared.target.pin.as_ref();
        self.prepared.route.group_for(self.prepared.inquiry.model.as_ref(), pin).ok().flatten()
    }
}

/// The places of a group, and how many replicas they are at.
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
