//! Answers of a sight of plain data to a journey.

use std::time::{Duration, Instant};

use spillway_route::{
    Access, ByRegion, HoldTime, KeptShare, Loads, OwnRegion, RegionCandidate, RegionReport,
    SpillTerms, Waiting,
};
use spillway_types::{Inquiry, ModelLoad, ModelName, RegionName, ReplicaSlot, Signals, Speed};

use super::{RESTING, TestRegion, TestReplica, TestSight};
use crate::{
    Claim, Conversation, QueueSight, RegionSight, ReplicaGroup, ReplicaSight, RequestSight,
    ResidencyDenial, Room, RoomLoads, RouteRules, SlotSight, TenantKey, TenantSight,
};

impl RequestSight for TestSight {
    fn inquiry(&self) -> &Inquiry {
        &self.inquiry
    }
    fn route_rules(&self) -> RouteRules {
        self.rules
    }
    fn is_idempotent(&self) -> bool {
        self.is_idempotent
    }
    fn is_repeatable(&self) -> bool {
        self.is_repeatable
    }
    fn client_patience(&self) -> Option<Duration> {
        self.patience
    }
    fn pinned(&self) -> Option<ReplicaSlot> {
        self.pinned
    }
    fn has_stand_in(&self) -> bool {
        self.stand_ins > 0
    }
    fn starts_with_stand_in(&self) -> bool {
        self.starts_with_stand_in
    }
    fn permission(&self) -> Result<(), ResidencyDenial> {
        self.permission
    }
}

#[derive(Debug)]
pub(crate) struct TestLoads<'a> {
    sight: &'a TestSight,
    room: Room,
    with_caches: bool,
}

impl Loads for TestLoads<'_> {
    fn in_flight(&self, slot: ReplicaSlot) -> u32 {
        self.sight.replica(slot).in_flight
    }
    fn limit(&self, slot: ReplicaSlot) -> u32 {
        self.room.slots(self.sight.replica(slot), slot)
    }
    fn cached_blocks_max(&self) -> u32 {
        if self.with_caches { self.sight.cached_longest } else { 0 }
    }
    fn speed(&self, slot: ReplicaSlot) -> Speed {
        self.sight.replica_speed(slot)
    }
}

impl SlotSight for TestReplica {
    fn rests_for(&self, tenant: u64) -> bool {
        tenant == RESTING && self.rests_until.is_some()
    }
    fn has_guessed_limit(&self) -> bool {
        self.is_guess
    }
    fn has_loaded(&self, _adapter: u64) -> bool {
        self.has_loaded
    }
    fn slots_for(&self, can_wait: bool) -> u32 {
        self.limit + u32::from(self.is_guess && !can_wait)
    }
    fn slots_for_guests(&self) -> u32 {
        u32::MAX
    }
}

impl RoomLoads for TestLoads<'_> {
    fn set_room(&mut self, room: Room) {
        self.room = room;
    }
}

impl ReplicaSight for TestSight {
    type Loads<'a> = TestLoads<'a>;

    fn group(&self) -> Option<ReplicaGroup<'_>> {
        let (group, next) = &self.groups;
        (!self.replicas.is_empty()).then_some(ReplicaGroup {
            group,
            next: next.as_ref(),
            is_out: self.is_out,
            busy_until: self.busy_until,
            healthy_permille: self.healthy_permille,
            adapter: self.adapter,
        })
    }
    fn loads(&self, room: Room, with_caches: bool) -> TestLoads<'_> {
        TestLoads { sight: self, room, with_caches }
    }
    fn signals(&self, _slot: ReplicaSlot) -> Signals {
        let mut signals = Signals::UNKNOWN;
        signals.queued.value = 0.0;
        signals.queued.trust = 1.0;
        signals
    }
    fn replica_speed(&self, _slot: ReplicaSlot) -> Speed {
        let floor_ms = self.first_token_ms.unwrap_or(20.0);
        let prefill_ms = self.prefill_ms;
        Speed { floor_ms, prefill_ms, is_decode_known: true, trust: 1.0, ..Speed::UNKNOWN }
    }
    fn hold_time(&self, _slot: ReplicaSlot) -> HoldTime {
        let hold = HoldTime::default();
        if self.is_fresh { hold } else { hold.with(1_000, 2_000.0) }
    }
    fn has_guessed_limit(&self, slot: ReplicaSlot) -> bool {
        self.replica(slot).is_guess
    }
}

impl TenantSight for TestSight {
    fn tenant(&self) -> Option<TenantKey> {
        self.tenant.map(|tenant| TenantKey { tenant, class: self.inquiry.priority })
    }
    fn left_by(&self, tenant: TenantKey) -> Option<KeptShare> {
        self.share.filter(|_| self.much.contains(&tenant.tenant))
    }
    fn kept_for(&self, tenant: TenantKey) -> Option<KeptShare> {
        self.share.filter(|_| !self.much.contains(&tenant.tenant))
    }
    fn rests_until(&self, slot: ReplicaSlot, tenant: u64) -> Option<Instant> {
        self.replica(slot).rests_until.filter(|_| tenant == RESTING)
    }
    fn tells_tenants_apart(&self) -> bool {
        self.share.is_some() || self.replicas.iter().any(|replica| replica.rests_until.is_some())
    }
    fn waiting_of(&self, is_counted: &dyn Fn(TenantKey) -> bool) -> Option<u32> {
        self.inquiry.model.as_ref()?;
        let key = |tenant: &u64| TenantKey { tenant: *tenant, class: self.inquiry.priority };
        let counted = self.queued.iter().filter(|tenant| is_counted(key(tenant)));
        u32::try_from(counted.count()).ok()
    }
}

impl QueueSight for TestSight {
    fn is_quiet(&self) -> bool {
        self.is_quiet
    }
    fn waiting(&self, _claim: Claim, certain_rate: &dyn Fn(f32) -> Option<f32>) -> Waiting {
        let expected = || certain_rate(1_000.0).map(|rate| (1_000.0 / rate) as u32);
        let wait_ms = self.wait_ms.or_else(expected);
        Waiting { ahead: self.ahead, wait_ms, all: self.ahead, has_room: self.has_room }
    }
}

impl RegionSight for TestSight {
    fn spill_terms(&self) -> &SpillTerms {
        &self.terms
    }
    fn regions_asked_max(&self) -> usize {
        self.asked_max
    }
    fn is_evacuated(&self) -> bool {
        self.is_evacuated
    }
    fn is_roomy(&self, _model: &ModelName) -> bool {
        self.is_roomy
    }
    fn is_alone(&self) -> bool {
        !self.regions.iter().any(|region| region.may_serve)
    }
    fn own(&self, _model: &ModelName, room: Room, waiting: Waiting) -> OwnRegion {
        let loads = self.loads(room, false);
        let slots = (0..self.best).map(|slot| ReplicaSlot(u32::try_from(slot).unwrap()));
        let free = |slot| loads.limit(slot).saturating_sub(loads.in_flight(slot));
        OwnRegion {
            replicas: u32::try_from(self.best).unwrap(),
            report: RegionReport {
                load: ModelLoad {
                    running: self.running,
                    replicas: self.reported_replicas,
                    ..ModelLoad::default()
                },
                ..RegionReport::default()
            },
            slots: Some(slots.map(free).sum()),
            waiting,
            guests: 0,
            nodes: 1,
            prefill_ms: 0.0,
            stall_ms: 0.0,
            price_ms: 0.0,
            weight_permille: 1_000,
            first_token_ms_max: None,
            rest_ms: 0.0,
            late_ms: None,
        }
    }
    fn others(
        &self,
        _model: &ModelName,
        access: &dyn Fn(&RegionName) -> Access,
    ) -> ByRegion<RegionCandidate> {
        let candidate = |region: &TestRegion| RegionCandidate {
            access: match region.may_serve && region.is_reachable {
                true => access(&region.name),
                false => Access::Unreachable,
            },
            report: RegionReport {
                load: ModelLoad {
                    capacity: Some(region.capacity),
                    running: region.running,
                    replicas: self.reported_replicas,
                    ..ModelLoad::default()
                },
                sent: region.sent,
                ..RegionReport::default()
            },
            rtt_ms: region.rtt_ms,
            prefill_ms: 0.0,
            stall_ms: 0.0,
            pending_ms: 0.0,
            rest_ms: 0.0,
            is_shared: false,
            price_ms: 0.0,
            weight_permille: 1_000,
            ramp_permille: 1_000,
            is_home: false,
            home_ms: 0.0,
        };
        self.regions.iter().map(candidate).collect()
    }
    fn region(&self, index: usize) -> &RegionName {
        &self.regions[index].name
    }
    fn may_serve(&self, region: &RegionName) -> bool {
        self.regions.iter().any(|known| known.name == *region && known.may_serve)
    }
    fn only_region(&self) -> Option<&RegionName> {
        self.only_region.as_ref()
    }
    fn session_region(&self) -> Option<&RegionName> {
        self.session_region.as_ref()
    }
    fn conversation(&self) -> Option<Conversation> {
        self.conversation.clone()
    }
    fn own_speed(&self, _model: &ModelName) -> Option<Speed> {
        Some(Speed { is_decode_known: true, trust: 1.0, ..Speed::UNKNOWN })
    }
    fn speed(&self, _index: usize, _model: &ModelName) -> Option<Speed> {
        Some(Speed { is_decode_known: true, trust: 1.0, ..Speed::UNKNOWN })
    }
    fn hot_blocks(&self) -> Option<ByRegion<u32>> {
        let is_any = self.regions.iter().any(|region| region.hot > 0);
        is_any.then(|| self.regions.iter().map(|region| region.hot).collect())
    }
    fn forwarded_blocks(&self) -> Option<ByRegion<u32>> {
        let is_any = self.regions.iter().any(|region| region.forwarded > 0);
        is_any.then(|| self.regions.iter().map(|region| region.forwarded).collect())
    }
    fn prefill_ms(&self, cached_blocks: u32, _speed: &Speed) -> f32 {
        (1_000.0 - 100.0 * cached_blocks as f32).max(0.0)
    }
}
