//! Facts that a decision reads: replicas, the queue, and regions at this moment.
//!
//! Reading changes nothing: no method of these traits takes from a budget, draws a number or raises
//! a counter, so that a decision can be explained, or made twice, without any effect.

use std::time::{Duration, Instant};

use spillway_route::{
    Access, ByRegion, Group, HoldTime, Loads, OwnRegion, RegionCandidate, SpillTerms, Waiting,
};
use spillway_types::{Inquiry, ModelName, RegionName, ReplicaSlot, Signals, Speed};

use crate::residency::ResidencyDenial;
use crate::room::Room;
use crate::route_rules::RouteRules;
use crate::standing::Claim;
use crate::tenant_share::TenantSight;

/// Everything that a decision may know. The node backs it with its view and counters, tests with
/// plain data. No method waits, and none has a side effect.
pub trait Sight: RequestSight + ReplicaSight + TenantSight + QueueSight + RegionSight {}

impl<T: RequestSight + ReplicaSight + TenantSight + QueueSight + RegionSight> Sight for T {}

/// Loads of replicas, counting only some of their slots.
pub trait RoomLoads: Loads {
    /// Counts these slots from now on.
    fn set_room(&mut self, room: Room);
}

/// Replicas that can serve the model which the request names now.
#[derive(Clone, Copy, Debug)]
pub struct ReplicaGroup<'a> {
    /// Replicas of the best standing.
    pub group: &'a Group,
    /// Replicas of the next best standing, if there are any: asked when all of the group failed.
    pub next: Option<&'a Group>,
    /// True if no replica of the group is known to serve: all are down or starting.
    pub is_out: bool,
    /// Moment at which the first replica takes requests again, if all have asked for a pause.
    pub busy_until: Option<Instant>,
    /// Share of the replicas' weight that is healthy, in thousandths.
    pub healthy_permille: u16,
    /// Identity of the model if it is an adapter: replicas that have it in memory come first.
    pub adapter: Option<u64>,
}

/// Facts about the request. No method has a side effect.
pub trait RequestSight {
    /// Returns the request as routing sees it, with the model that it names now.
    fn inquiry(&self) -> &Inquiry;

    /// Returns the rules of the route that serves that model.
    fn route_rules(&self) -> RouteRules;

    /// Returns true if the client sent an idempotency key: a request that arrives twice is done once.
    fn is_idempotent(&self) -> bool;

    /// Returns true if the request can be sent to two replicas at a time and leaves nothing behind at
    /// the one that is not needed.
    fn is_repeatable(&self) -> bool;

    /// Returns how long the client waits for a reply to begin; `None` if it does not say.
    fn client_patience(&self) -> Option<Duration>;

    /// Returns the one replica that can answer, e.g. since it stores the response asked for.
    fn pinned(&self) -> Option<ReplicaSlot>;

    /// Returns true if there is a stand-in for the model that the request names now.
    fn has_stand_in(&self) -> bool;

    /// Returns true if another model is to be asked before the one that the client asked for, whose
    /// replicas are in a bad state.
    fn starts_with_stand_in(&self) -> bool;

    /// Judges if this node's region may serve the request, by all that is known now.
    ///
    /// # Errors
    /// Returns the reason for which it may not.
    fn permission(&self) -> Result<(), ResidencyDenial>;
}

/// Facts about the replicas of this region that can serve the request. No method has a side effect.
pub trait ReplicaSight {
    /// Loads of replicas at one moment.
    type Loads<'a>: RoomLoads
    where
        Self: 'a;

    /// Returns the replicas for the model; `None` if none serves it.
    fn group(&self) -> Option<ReplicaGroup<'_>>;

    /// Returns the loads of replicas, as far as this room counts. `with_caches`: the request's prompt
    /// is looked up in the prefix index.
    fn loads(&self, room: Room, with_caches: bool) -> Self::Loads<'_>;

    /// Returns a replica's load beyond this process, as far as it is known.
    fn signals(&self, slot: ReplicaSlot) -> Signals;

    /// Returns the speed of a replica, as it was measured.
    fn replica_speed(&self, slot: ReplicaSlot) -> Speed;

    /// Returns how long requests have kept a slot at a replica lately.
    fn hold_time(&self, slot: ReplicaSlot) -> HoldTime;

    /// Returns true if a replica's limit of requests in flight is still being learned.
    fn has_guessed_limit(&self, slot: ReplicaSlot) -> bool;
}

/// Facts about this node's queue. No method has a side effect.
pub trait QueueSight {
    /// Returns true if nothing waits and no slot is promised.
    fn is_quiet(&self) -> bool;

    /// Returns the queue before the request. `certain_rate` returns the requests per second, of so many tokens on average, that the
    /// replicas serve for certain; it is called only if no rate was measured.
    fn waiting(&self, claim: Claim, certain_rate: &dyn Fn(f32) -> Option<f32>) -> Waiting;
}

/// A region that served the conversation before.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Conversation {
    /// The region.
    pub region: RegionName,
    /// Leading blocks of the prompt that belong to that conversation.
    pub blocks: u32,
}

/// Facts about the regions. Other regions are named by their index. No method has a side effect.
pub trait RegionSight {
    /// Returns the terms on which regions are compared.
    fn spill_terms(&self) -> &SpillTerms;

    /// Returns how many regions one request asks at most.
    fn regions_asked_max(&self) -> usize;

    /// Returns true if the own region is evacuated: requests go elsewhere while that is possible.
    fn is_evacuated(&self) -> bool;

    /// Returns true if the own region needs no comparison: it is the only one, or half empty.
    fn is_roomy(&self, model: &ModelName) -> bool;

    /// Returns true if no other region may serve the request.
    fn is_alone(&self) -> bool;

    /// Returns the own region with the slots of `room`; the caller fills in what it knows better.
    fn own(&self, model: &ModelName, room: Room, waiting: Waiting) -> OwnRegion;

    /// Returns the other regions in their order. `access` returns the access of this request to a
    /// region that can be reached.
    fn others(
        &self,
        model: &ModelName,
        access: &dyn Fn(&RegionName) -> Access,
    ) -> ByRegion<RegionCandidate>;

    /// Returns the name of another region.
    fn region(&self, index: usize) -> &RegionName;

    /// Returns true if another region may serve the request, by all that is known now.
    fn may_serve(&self, region: &RegionName) -> bool;

    /// Returns the only region that can serve the request, e.g. since it stores the response asked for.
    fn only_region(&self) -> Option<&RegionName>;

    /// Returns the other region that holds the request's session.
    fn session_region(&self) -> Option<&RegionName>;

    /// Returns the region that served the conversation before.
    fn conversation(&self) -> Option<Conversation>;

    /// Returns the mean speed of the own replicas.
    fn own_speed(&self, model: &ModelName) -> Option<Speed>;

    /// Returns the mean speed of another region's replicas.
    fn speed(&self, index: usize, model: &ModelName) -> Option<Speed>;

    /// Returns the leading blocks of the prompt that each other region holds, by its index; `None` if
    /// no region holds any.
    fn hot_blocks(&self) -> Option<ByRegion<u32>>;

    /// Returns the leading blocks of the prompt that this region's nodes forwarded to each other
    /// region before, by its index; `None` if they forwarded none.
    fn forwarded_blocks(&self) -> Option<ByRegion<u32>>;

    /// Returns the milliseconds to read the uncached part of the prompt at this speed.
    fn prefill_ms(&self, cached_blocks: u32, speed: &Speed) -> f32;
}
