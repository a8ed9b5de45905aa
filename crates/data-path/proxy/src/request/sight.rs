//! Facts that a request's journey may read, from the node's view, counters and queues. No method has a
//! side effect.

use std::time::Duration;

use http::{HeaderName, Method};
use spillway_journey::{
    Claim, Conversation, QueueSight, RegionSight, ReplicaGroup, ReplicaSight, RequestSight,
    ResidencyDenial, Room, RouteRules,
};
use spillway_request::flavour::Flavour;
use spillway_request::headers::client_patience;
use spillway_route::{Access, ByRegion, HoldTime, OwnRegion, RegionCandidate, SpillTerms, Waiting};
use spillway_types::{Inquiry, ModelName, RegionName, ReplicaSlot, Signals, Speed};
use spillway_upstream::RequestBody;
use spillway_view::{Cached, LiveLoads};

use crate::request::dispatch::Dispatch;

/// A client's promise that the request may be sent again.
static IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");

impl RequestSight for Dispatch<'_> {
    fn inquiry(&self) -> &Inquiry {
        &self.prepared.inquiry
    }

    fn route_rules(&self) -> RouteRules {
        let spec = &self.prepared.route.spec;
        RouteRules {
            reads_caches: spec.policy.reads_caches(),
            queue_count_max: spec.queue.limits.count_max,
            wait_ms_max: spec.queue.limits.wait_ms_max,
            start_wait_ms: spec.queue.start_wait_ms,
            slo: spec.queue.slo,
            degraded_below_permille: spec.queue.degraded_below_permille,
        }
    }

    fn is_idempotent(&self) -> bool {
        self.head.headers.contains_key(&IDEMPOTENCY_KEY)
    }

    fn is_repeatable(&self) -> bool {
        matches!(self.prepared.body, RequestBody::Buffered(_))
            && self.head.method == Method::POST
            && self.prepared.flavour != Flavour::Grpc
            && self.prepared.stored_for.is_none()
            && self.prepared.pinned.is_none()
    }

    fn client_patience(&self) -> Option<Duration> {
        client_patience(&self.head.headers)
    }

    fn pinned(&self) -> Option<ReplicaSlot> {
        self.prepared.pinned
    }

    fn has_stand_in(&self) -> bool {
        self.prepared.has_stand_in()
    }

    fn starts_with_stand_in(&self) -> bool {
        self.prepared.starts_elsewhere()
    }

    fn permission(&self) -> Result<(), ResidencyDenial> {
        let gateway = &self.worker.gateway;
        let (region, country) = (gateway.routing.own_region.as_str(), self.regions.own_country);
        let Inquiry { tenant, client, hop, residency, .. } = &self.prepared.inquiry;
        ResidencyDenial::judge(residency.may_serve(region, country), || {
            let tenant = tenant.as_ref();
            let is_client_allowed =
                || gateway.routing.locations().may_serve(*client, region, country);
            tenant.is_none_or(|tenant| gateway.clients.authenticator.may_serve(tenant, region, country))
                // Only a guest's own node knows its client's country.
                && (*hop > 0 || is_client_allowed())
        })
    }
}

impl ReplicaSight for Dispatch<'_> {
    type Loads<'a>
        = LiveLoads<'a>
    where
        Self: 'a;

    fn group(&self) -> Option<ReplicaGroup<'_>> {
        let group = Dispatch::group(self)?;
        Some(ReplicaGroup {
            group: &group.group,
            next: group.next.as_ref(),
            is_out: group.is_out(),
            busy_until: group.busy_until,
            healthy_permille: group.healthy_permille,
            adapter: group.adapter,
        })
    }

    fn loads(&self, room: Room, with_caches: bool) -> LiveLoads<'_> {
        let cached = match with_caches {
            true => self.worker.gateway.routing.knowledge.look_up(&self.prepared.inquiry),
            false => Cached::NOTHING,
        };
        self.view.loads(cached, room, self.prepared.traffic())
    }

    fn signals(&self, slot: ReplicaSlot) -> Signals {
        self.view.replica_loads().signals(slot)
    }

    fn replica_speed(&self, slot: ReplicaSlot) -> Speed {
        self.view.replica_loads().speed(slot)
    }

    fn hold_time(&self, slot: ReplicaSlot) -> HoldTime {
        self.view.replica(slot).hold_time()
    }

    fn has_guessed_limit(&self, slot: ReplicaSlot) -> bool {
        self.view.replica(slot).has_guessed_limit()
    }
}

impl QueueSight for Dispatch<'_> {
    fn is_quiet(&self) -> bool {
        self.worker.gateway.routing.waiting.is_quiet()
    }

    fn waiting(&self, claim: Claim, certain_rate: &dyn Fn(f32) -> Option<f32>) -> Waiting {
        match (&self.interim.queued_request, &self.prepared.inquiry.model) {
            (Some(queued_request), _) => queued_request.waiting(),
            (None, Some(model)) => {
                let asking = self.asking(model, claim);
                self.worker.gateway.routing.waiting.before(&asking, certain_rate)
            }
            // Queues are kept by model: without one there is none to wait in.
            (None, None) => Waiting { ahead: 0, wait_ms: None, all: 0, has_room: false },
        }
    }
}

impl RegionSight for Dispatch<'_> {
    fn spill_terms(&self) -> &SpillTerms {
        &self.regions.terms
    }

    fn regions_asked_max(&self) -> usize {
        self.regions.asked_max
    }

    fn is_evacuated(&self) -> bool {
        self.regions.is_evacuated
    }

    fn is_roomy(&self, model: &ModelName) -> bool {
        self.regions.is_roomy(model)
    }

    fn is_alone(&self) -> bool {
        let residency = &self.prepared.inquiry.residency;
        !self.regions.others.iter().any(|other| other.may_serve(residency))
    }

    fn own(&self, model: &ModelName, room: Room, waiting: Waiting) -> OwnRegion {
        let pin = self.prepared.target.pin.as_ref();
        let group = self.prepared.route.group_for(Some(model), pin).ok().flatten();
        let loads = ReplicaSight::loads(self, room, false);
        self.regions.own(model, group, &loads, waiting)
    }

    fn others(
        &self,
        model: &ModelName,
        access: &dyn Fn(&RegionName) -> Access,
    ) -> ByRegion<RegionCandidate> {
        self.regions.candidates(model, &self.prepared.inquiry.residency, access)
    }

    fn region(&self, index: usize) -> &RegionName {
        &self.regions.others[index].name
    }

    fn may_serve(&self, region: &RegionName) -> bool {
        // Read again: the rules may have changed since the plan was made.
        self.worker.gateway.routing.may_serve(region, &self.prepared.inquiry.residency)
    }

    fn only_region(&self) -> Option<&RegionName> {
        self.prepared.target.home.as_ref().map(|home| &home.region)
    }

    fn session_region(&self) -> Option<&RegionName> {
        self.prepared.target.session_region.as_ref()
    }

    fn conversation(&self) -> Option<Conversation> {
        let conversations = &self.worker.gateway.homes.conversations;
        let served = conversations.find(self.prepared.inquiry.prefix.as_slice())?;
        Some(Conversation { region: served.region, blocks: served.blocks })
    }

    fn own_speed(&self, model: &ModelName) -> Option<Speed> {
        self.regions.own.get(model).map(|own| own.speed)
    }

    fn speed(&self, index: usize, model: &ModelName) -> Option<Speed> {
        self.regions.others.get(index)?.models.get(model).map(|model| model.speed)
    }

    fn hot_blocks(&self) -> Option<ByRegion<u32>> {
        let hot = self.worker.gateway.routing.knowledge.look_up_hot(&self.prepared.inquiry);
        let others = self.regions.others.iter();
        hot.is_any().then(|| others.map(|other| hot.blocks(&other.name)).collect())
    }

    fn forwarded_blocks(&self) -> Option<ByRegion<u32>> {
        let forwarded =
            self.worker.gateway.routing.knowledge.look_up_forwards(&self.prepared.inquiry);
        let others = self.regions.others.iter();
        forwarded.is_any().then(|| others.map(|other| forwarded.blocks(&other.name)).collect())
    }

    fn prefill_ms(&self, cached_blocks: u32, speed: &Speed) -> f32 {
        let knowledge = &self.worker.gateway.routing.knowledge;
        knowledge.prefill_ms(&self.prepared.inquiry, cached_blocks, speed)
    }
}
