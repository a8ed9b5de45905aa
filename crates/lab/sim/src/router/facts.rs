//! Facts that a request's journey may read, from the knowledge of the world and the node's memory.

use std::time::{Duration, Instant};

use spillway_journey::{
    Claim, Conversation, QueueSight, RegionSight, ReplicaGroup, ReplicaSight, RequestSight,
    ResidencyDenial, Room, RoomLoads, RouteRules, SlotSight, TenantKey, TenantSight,
};
use spillway_route::{
    Access, ByRegion, HoldTime, KeptShare, Loads, OwnRegion, RegionCandidate, SpillTerms, Waiting,
};
use spillway_types::{Inquiry, ModelName, RAMP_FULL, RegionName, ReplicaSlot, Signals, Speed};

use super::spillway::SpillwayRouter;
use super::{Ask, OwnReplica, RemoteRegion, Slots, WorldView};
use crate::text::{BLOCK_TOKENS, BYTES_PER_TOKEN};

/// Everything that a node knows at one moment of one request and its surroundings.
#[derive(Debug)]
pub(super) struct Facts<'a> {
    pub(super) router: &'a SpillwayRouter,
    pub(super) ask: &'a Ask<'a>,
    pub(super) sight: &'a WorldView<'a>,
}

impl Facts<'_> {
    fn may_serve_by_request(&self, region: &RegionName) -> bool {
        self.ask.inquiry.residency.may_serve(region, None)
    }

    fn healthy_permille(&self) -> u16 {
        let all = self.sight.replicas.len().max(1);
        u16::try_from(self.router.group.candidates().len() * 1_000 / all).unwrap_or(u16::MAX)
    }

    fn other(&self, region: &RegionName) -> bool {
        self.router.other_names.contains(region)
    }
}

impl RequestSight for Facts<'_> {
    fn inquiry(&self) -> &Inquiry {
        self.ask.inquiry
    }

    fn route_rules(&self) -> RouteRules {
        let limits = self.sight.queue.limits();
        RouteRules {
            reads_caches: self.router.config.policy.reads_caches(),
            queue_count_max: limits.count_max,
            wait_ms_max: limits.wait_ms_max,
            start_wait_ms: 0,
            slo: self.router.config.slo_ms.map(|ms| Duration::from_millis(ms.into())),
            degraded_below_permille: 0,
        }
    }

    fn is_idempotent(&self) -> bool {
        false
    }

    fn is_repeatable(&self) -> bool {
        // As on a route without hedging, which is the gateway's default.
        false
    }

    fn client_patience(&self) -> Option<Duration> {
        // The deadline covers it.
        None
    }

    fn pinned(&self) -> Option<ReplicaSlot> {
        None
    }

    fn has_stand_in(&self) -> bool {
        false
    }

    fn starts_with_stand_in(&self) -> bool {
        false
    }

    fn permission(&self) -> Result<(), ResidencyDenial> {
        ResidencyDenial::judge(self.may_serve_by_request(&self.router.name), || true)
    }
}

impl ReplicaSight for Facts<'_> {
    type Loads<'b>
        = Board<'b>
    where
        Self: 'b;

    fn group(&self) -> Option<ReplicaGroup<'_>> {
        Some(ReplicaGroup {
            group: &self.router.group,
            next: None,
            is_out: false,
            busy_until: None,
            healthy_permille: self.healthy_permille(),
            adapter: None,
        })
    }

    fn loads(&self, room: Room, with_caches: bool) -> Board<'_> {
        Board { router: self.router, sight: self.sight, room, with_caches }
    }

    fn signals(&self, slot: ReplicaSlot) -> Signals {
        self.sight.replicas[slot.index()].signals
    }

    fn replica_speed(&self, slot: ReplicaSlot) -> Speed {
        self.router.speeds[slot.index()]
    }

    fn hold_time(&self, slot: ReplicaSlot) -> HoldTime {
        self.sight.replicas[slot.index()].slots.hold
    }

    fn has_guessed_limit(&self, slot: ReplicaSlot) -> bool {
        SlotSight::has_guessed_limit(&self.sight.replicas[slot.index()])
    }
}

/// Tenants are not distinguished: requests have no tenants here.
impl TenantSight for Facts<'_> {
    fn tenant(&self) -> Option<TenantKey> {
        None
    }

    fn left_by(&self, _tenant: TenantKey) -> Option<KeptShare> {
        None
    }

    fn kept_for(&self, _tenant: TenantKey) -> Option<KeptShare> {
        None
    }

    fn rests_until(&self, _slot: ReplicaSlot, _tenant: u64) -> Option<Instant> {
        None
    }

    fn tells_tenants_apart(&self) -> bool {
        false
    }

    fn waiting_of(&self, _is_counted: &dyn Fn(TenantKey) -> bool) -> Option<u32> {
        None
    }
}

impl QueueSight for Facts<'_> {
    fn is_quiet(&self) -> bool {
        self.sight.queue.is_quiet()
    }

    fn waiting(&self, claim: Claim, certain_rate: &dyn Fn(f32) -> Option<f32>) -> Waiting {
        let (queue, now) = (self.sight.queue, self.sight.now);
        match self.ask.ticket {
            Some(ticket) => queue.waiting_of(ticket, now),
            None => queue.before(&self.ask.asker(claim), now, certain_rate),
        }
    }
}

impl RegionSight for Facts<'_> {
    fn spill_terms(&self) -> &SpillTerms {
        &self.router.config.terms
    }

    fn regions_asked_max(&self) -> usize {
        if self.router.config.spills { self.router.config.regions_asked_max } else { 0 }
    }

    fn is_evacuated(&self) -> bool {
        self.router.is_evacuated
    }

    fn is_roomy(&self, _model: &ModelName) -> bool {
        self.router.other_names.is_empty() || self.sight.own.load.is_half_empty()
    }

    fn is_alone(&self) -> bool {
        !self.router.config.spills
            || !self.router.other_names.iter().any(|name| self.may_serve_by_request(name))
    }

    fn own(&self, _model: &ModelName, room: Room, waiting: Waiting) -> OwnRegion {
        own_region(self.sight, room, waiting)
    }

    fn others(
        &self,
        _model: &ModelName,
        access: &dyn Fn(&RegionName) -> Access,
    ) -> ByRegion<RegionCandidate> {
        let candidate = |(other, name): (&RemoteRegion, &RegionName)| RegionCandidate {
            access: match other.report {
                Some(_) if self.may_serve_by_request(name) => access(name),
                // Without a report there is nothing to weigh, and none is there of a silent region;
                // residency may forbid the region, too.
                _ => Access::Unreachable,
            },
            report: other.report.unwrap_or_default(),
            rtt_ms: other.rtt_ms,
            prefill_ms: 0.0,
            stall_ms: 0.0,
            pending_ms: 0.0,
            rest_ms: 0.0,
            is_shared: false,
            price_ms: 0.0,
            weight_permille: RAMP_FULL,
            ramp_permille: RAMP_FULL,
            is_home: false,
            home_ms: 0.0,
        };
        self.sight.others.iter().zip(&self.router.other_names).map(candidate).collect()
    }

    fn region(&self, index: usize) -> &RegionName {
        &self.router.other_names[index]
    }

    fn may_serve(&self, region: &RegionName) -> bool {
        self.other(region) && self.may_serve_by_request(region)
    }

    fn only_region(&self) -> Option<&RegionName> {
        None
    }

    fn session_region(&self) -> Option<&RegionName> {
        None
    }

    fn conversation(&self) -> Option<Conversation> {
        None
    }

    fn own_speed(&self, _model: &ModelName) -> Option<Speed> {
        self.router.speeds.first().copied()
    }

    fn speed(&self, _index: usize, _model: &ModelName) -> Option<Speed> {
        // Reports have no speeds here: other regions count as fast as this one.
        None
    }

    fn hot_blocks(&self) -> Option<ByRegion<u32>> {
        let blocks = |other: &RemoteRegion| self.router.memory.hot_blocks(other.region);
        let hot: ByRegion<u32> = self.sight.others.iter().map(blocks).collect();
        hot.iter().any(|&blocks| blocks > 0).then_some(hot)
    }

    fn prefill_ms(&self, cached_blocks: u32, speed: &Speed) -> f32 {
        let cached_bytes = (cached_blocks * BLOCK_TOKENS * BYTES_PER_TOKEN) as f32;
        speed.reading_ms(self.ask.inquiry.prompt_bytes as f32, cached_bytes)
    }

    fn forwarded_blocks(&self) -> Option<ByRegion<u32>> {
        let blocks = |other: &RemoteRegion| self.router.memory.forwarded_blocks(other.region);
        let forwarded: ByRegion<u32> = self.sight.others.iter().map(blocks).collect();
        forwarded.iter().any(|&blocks| blocks > 0).then_some(forwarded)
    }
}

/// Returns the own region with this queue, and with the slots that count by `room`.
pub(super) fn own_region(sight: &WorldView<'_>, room: Room, waiting: Waiting) -> OwnRegion {
    let here = || (0..).map(ReplicaSlot).zip(sight.replicas).filter(|(_, one)| !one.is_away);
    let left = |(slot, one): (ReplicaSlot, &OwnReplica)| {
        let limit = room.slots(one, slot).min(one.slots.in_flight_max);
        (limit < u32::MAX).then(|| limit.saturating_sub(one.in_flight))
    };
    OwnRegion {
        replicas: here().count() as u32,
        report: sight.own,
        slots: here().map(left).try_fold(0, |sum: u32, left| Some(sum.saturating_add(left?))),
        waiting,
        guests: sight.guests,
        nodes: sight.nodes,
        prefill_ms: 0.0,
        stall_ms: 0.0,
        price_ms: 0.0,
        weight_permille: RAMP_FULL,
        first_token_ms_max: None,
        rest_ms: 0.0,
        late_ms: None,
    }
}

/// Loads that the policies read.
#[derive(Debug)]
pub(super) struct Board<'a> {
    router: &'a SpillwayRouter,
    sight: &'a WorldView<'a>,
    room: Room,
    with_caches: bool,
}

impl RoomLoads for Board<'_> {
    fn set_room(&mut self, room: Room) {
        self.room = room;
    }
}

impl Loads for Board<'_> {
    fn in_flight(&self, slot: ReplicaSlot) -> u32 {
        self.sight.replicas[slot.index()].in_flight
    }

    fn elsewhere(&self, slot: ReplicaSlot) -> u32 {
        self.sight.replicas[slot.index()].elsewhere
    }

    fn limit(&self, slot: ReplicaSlot) -> u32 {
        let cached_blocks = self.cached_blocks(slot);
        self.room.slots_with(&self.sight.replicas[slot.index()], slot, cached_blocks)
    }

    fn started(&self, slot: ReplicaSlot) -> u64 {
        self.sight.replicas[slot.index()].started
    }

    fn signals(&self, slot: ReplicaSlot) -> Signals {
        let replica = &self.sight.replicas[slot.index()];
        if self.router.config.corrects {
            return replica.signals;
        }
        Signals {
            in_flight_at_report: replica.in_flight + replica.elsewhere,
            // As if the report were of this moment: nothing was sent since.
            started_at: replica.started,
            ..replica.signals
        }
    }

    fn cached_blocks(&self, slot: ReplicaSlot) -> u32 {
        if self.with_caches { self.router.cached[slot.index()] } else { 0 }
    }

    fn cached_blocks_max(&self) -> u32 {
        let longest = || self.router.cached.iter().copied().max().unwrap_or(0);
        if self.with_caches { longest() } else { 0 }
    }

    fn pending_tokens(&self, slot: ReplicaSlot) -> u32 {
        let replica = &self.sight.replicas[slot.index()];
        let pending = replica.pending_tokens.saturating_add(replica.pending_elsewhere);
        if self.router.config.corrects { pending } else { 0 }
    }

    fn context_tokens(&self, slot: ReplicaSlot) -> u32 {
        self.sight.replicas[slot.index()].context_tokens
    }

    fn speed(&self, slot: ReplicaSlot) -> Speed {
        self.router.speeds[slot.index()]
    }
}

impl SlotSight for OwnReplica {
    fn rests_for(&self, _tenant: u64) -> bool {
        false
    }

    fn has_guessed_limit(&self) -> bool {
        self.slots.is_guess()
    }

    fn has_loaded(&self, _adapter: u64) -> bool {
        false
    }

    fn slots_for(&self, can_wait: bool) -> u32 {
        if can_wait { self.slots.own_part } else { u32::MAX }
    }

    fn slots_for_guests(&self) -> u32 {
        let Slots { unbegun, guests_unbegun_max, .. } = self.slots;
        let more = |most: u32| self.in_flight.saturating_add(most.saturating_sub(unbegun));
        guests_unbegun_max.map_or(u32::MAX, more)
    }
}
