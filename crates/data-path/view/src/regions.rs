//! State of the own region and the others, by which requests are routed.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Instant;

use spillway_route::{
    Access, ByRegion, Candidate, Loads, OwnRegion, RegionCandidate, RegionReport, SpillTerms,
    Waiting,
};
use spillway_types::{
    AwayReason, Country, LeftOutReason, LeftOutRegion, ModelLoad, ModelName, RegionName, Residency,
    ShedState, Speed, Steering,
};

use crate::live_loads::LiveLoads;
use crate::pending_guests::PendingGuests;
use crate::remote::RemoteError;
use crate::route_group::RouteGroup;
use crate::shared_region_circuit_breaker::SharedRegionCircuitBreaker;

/// Immutable state of all regions. Every change builds a new one. Every request that may be
/// forwarded reads it.
#[derive(Debug)]
pub struct Regions {
    /// Terms on which regions are compared.
    pub terms: SpillTerms,
    /// Regions that one request asks at most.
    pub asked_max: usize,
    /// Load of the own region by model, as of `at`.
    pub own: BTreeMap<ModelName, OwnModel>,
    /// Load of all own replicas together; `None` in a node without other nodes, which measures none.
    pub own_whole: Option<ModelLoad>,
    /// Operator's terms for the own region.
    pub own_terms: RegionTerms,
    /// Country of the own region, if it was configured.
    pub own_country: Option<Country>,
    /// True once the models of other regions were received, or the wait for them has ended. Before
    /// that, an unknown model may turn out to exist.
    pub knows_models: bool,
    /// True once the countries of all regions were received, or the wait for them has ended. Before
    /// that, a region may turn out to be allowed to serve a request.
    pub knows_countries: bool,
    /// True if the own region is evacuated: its clients' requests go elsewhere while that is
    /// possible.
    pub is_evacuated: bool,
    /// Steering of clients to the own region, to any of its nodes.
    pub own_steering: Steering,
    /// The other regions.
    pub others: Vec<OtherRegion>,
    /// Time at which this state was built.
    pub at: Instant,
}

/// Operator's terms for a region.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RegionTerms {
    /// Milliseconds added to the region's cost.
    pub price_ms: f32,
    /// Weight of the region, in thousandths.
    pub weight_permille: u16,
}

/// Load of the own region for one model.
#[derive(Clone, Debug)]
pub struct OwnModel {
    /// Sum over the replicas.
    pub load: ModelLoad,
    /// Mean speed of the replicas.
    pub speed: Speed,
    /// Requests that this node had ever sent to the replicas at that time.
    pub sent: u64,
    /// Requests of these that had ended.
    pub ended: u64,
    /// Guests that were accepted and are about to take a slot here.
    pub coming: PendingGuests,
    /// Nodes of the region that serve clients.
    pub nodes: u32,
}

/// Another region.
#[derive(Debug)]
pub struct OtherRegion {
    /// Name of the region.
    pub name: RegionName,
    /// True if this node receives the region's reports, even if the region does not receive this
    /// one's.
    pub is_heard: bool,
    /// True if the two regions receive each other's reports, and a connection leads there.
    pub is_reachable: bool,
    /// Steering of clients to the region, by its own word. A region that sends none takes clients.
    pub steering: Steering,
    /// Smoothed round trip time, milliseconds.
    pub rtt_ms: f32,
    /// Operator's terms for the region.
    pub terms: RegionTerms,
    /// Country of the region, if the region has reported it.
    pub country: Option<Country>,
    /// Slow start of the region after it has come back: part of its share, in thousandths.
    pub ramp_permille: u16,
    /// Circuit breaker of the region, by how requests end there.
    pub breaker: Arc<SharedRegionCircuitBreaker>,
    /// Age of its report at [`Regions::at`], including its time in transit, in milliseconds.
    pub age_ms: f32,
    /// Time from the region's last message to [`Regions::at`], in milliseconds; `None` if there was
    /// none.
    pub heard_ms: Option<u32>,
    /// Reported load by model.
    pub models: BTreeMap<ModelName, OtherModel>,
    /// Reported load of all its replicas together; `None` from a node of an older release.
    pub whole: Option<ModelLoad>,
}

/// Load of another region for one model.
#[derive(Debug)]
pub struct OtherModel {
    /// Load as the region reported it.
    pub load: ModelLoad,
    /// Mean speed of the region's replicas, as it reported.
    pub speed: Speed,
    /// Requests of this node there.
    pub counts: Arc<RegionCounts>,
    /// Requests ever sent there of which the report may know.
    pub sent: u64,
    /// Requests ended there of which the report may know.
    pub ended: u64,
}

/// This node's requests in another region, for one model.
#[derive(Debug, Default)]
pub struct RegionCounts {
    in_flight: AtomicU32,
    sent: AtomicU64,
    refused: AtomicU64,
    broken: AtomicU64,
}

/// Part of one request in the counts, until it is dropped.
#[derive(Debug)]
pub struct RegionCount(Arc<RegionCounts>);

impl RegionCounts {
    /// Returns how many requests are in flight there.
    #[must_use]
    pub fn in_flight(&self) -> u32 {
        self.in_flight.load(Ordering::Relaxed)
    }

    /// Returns how many requests were ever sent there.
    #[must_use]
    pub fn sent(&self) -> u64 {
        self.sent.load(Ordering::Relaxed)
    }

    /// Returns how many requests sent there have ended.
    #[must_use]
    pub fn ended(&self) -> u64 {
        // Read in this order, so that the difference is never below 0.
        let in_flight = u64::from(self.in_flight());
        self.sent().saturating_sub(in_flight)
    }

    /// Returns how many requests the region refused.
    #[must_use]
    pub fn refused(&self) -> u64 {
        self.refused.load(Ordering::Relaxed)
    }

    /// Returns how many requests the link lost.
    #[must_use]
    pub fn broken(&self) -> u64 {
        self.broken.load(Ordering::Relaxed)
    }

    /// Begins a count of its own, for a request to another node of the own region.
    pub fn alone() -> RegionCount {
        Arc::<Self>::default().begin()
    }

    fn begin(self: &Arc<Self>) -> RegionCount {
        self.in_flight.fetch_add(1, Ordering::Relaxed);
        self.sent.fetch_add(1, Ordering::Relaxed);
        RegionCount(Arc::clone(self))
    }
}

impl RegionCount {
    /// Notes the reason for which the region did not serve the request.
    pub fn failed(&self, failure: &RemoteError) {
        let counter = match failure {
            RemoteError::Refused { .. } | RemoteError::Leaving => &self.0.refused,
            // The deadline of the client is no fault of the region.
            RemoteError::DeadlinePassed => return,
            RemoteError::NotConnected
            | RemoteError::Unsent(_)
            | RemoteError::Broken(_)
            | RemoteError::Lost => &self.0.broken,
        };
        counter.fetch_add(1, Ordering::Relaxed);
    }
}

impl Drop for RegionCount {
    fn drop(&mut self) {
        self.0.in_flight.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Default for RegionTerms {
    fn default() -> Self {
        Self { price_ms: 0.0, weight_permille: 1_000 }
    }
}

impl Regions {
    /// Creates the state of a node that knows of no other region.
    #[must_use]
    pub fn alone(now: Instant) -> Self {
        Self {
            terms: SpillTerms::default(),
            asked_max: 0,
            own: BTreeMap::new(),
            own_whole: None,
            own_terms: RegionTerms::default(),
            own_country: None,
            knows_models: true,
            knows_countries: true,
            is_evacuated: false,
            own_steering: Steering::Send,
            others: Vec::new(),
            at: now,
        }
    }

    /// Returns true if another region may serve a request with this residency; false for an unknown
    /// region, unless any region may.
    pub fn may_serve(&self, region: &RegionName, residency: &Residency) -> bool {
        let other = self.others.iter().find(|other| other.name == *region);
        let is_allowed = |other: &OtherRegion| other.may_serve(residency);
        residency.is_anywhere() || other.is_some_and(is_allowed)
    }

    /// Returns true if the two regions receive each other's reports, and a connection leads there.
    pub fn is_reachable(&self, region: &RegionName) -> bool {
        self.others.iter().any(|other| other.name == *region && other.is_reachable)
    }

    /// Returns true if a region that is in reach serves the model, and may serve a request with this
    /// residency.
    pub fn serve(&self, model: &ModelName, residency: &Residency) -> bool {
        let mut others = self.others.iter().filter(|other| other.is_reachable);
        others.any(|it| {
            it.breaker.is_open() && it.models.contains_key(model) && it.may_serve(residency)
        })
    }

    /// Returns true if that region is being drained, by an operator's order or since its node is about
    /// to end: streams leave it where another slot can continue them.
    pub fn is_leaving(&self, region: &RegionName) -> bool {
        let is_leaving = |other: &OtherRegion| {
            let reason = AwayReason::Draining;
            other.terms.weight_permille == 0 || other.steering == Steering::Away(reason)
        };
        self.others.iter().any(|other| other.name == *region && is_leaving(other))
    }

    /// Returns true if there is no other region.
    pub fn is_alone(&self) -> bool {
        self.others.is_empty()
    }

    /// Counts a request to that region until the result is dropped; `None` if there is no such
    /// region. A request without a model, for a response that is stored there, is in no model's
    /// counts.
    pub fn count(&self, region: &RegionName, model: Option<&ModelName>) -> Option<RegionCount> {
        let other = self.others.iter().find(|other| other.name == *region)?;
        let model = model.and_then(|model| other.models.get(model));
        // Without a model the request has counts of its own, which end with it.
        let counts = model.map(|model| Arc::clone(&model.counts)).unwrap_or_default();
        Some(counts.begin())
    }

    /// Returns the circuit breaker of that region; `None` if there is no such region.
    pub fn breaker(&self, region: &RegionName) -> Option<&Arc<SharedRegionCircuitBreaker>> {
        self.others.iter().find(|other| other.name == *region).map(|other| &other.breaker)
    }

    /// Returns true if that region is known to have room, so that a long body need not wait for its
    /// answer.
    pub fn has_room(&self, region: &RegionName, model: &ModelName) -> bool {
        let other = self.others.iter().find(|other| other.name == *region);
        let load = other.and_then(|other| other.models.get(model)).map(|model| &model.load);
        load.is_some_and(|load| load.shed == ShedState::Open && load.is_half_empty())
    }

    /// Returns true if the own region needs no comparison: it is the only one, or at most half
    /// full.
    pub fn is_roomy(&self, model: &ModelName) -> bool {
        let is_half_empty = || self.own.get(model).is_some_and(|own| own.load.is_half_empty());
        self.is_alone() || (!self.is_evacuated && is_half_empty())
    }

    /// Returns the own region as it is now. `group` are its replicas for the model, and `loads` say
    /// which of their slots count.
    pub fn own(
        &self,
        model: &ModelName,
        group: Option<&RouteGroup>,
        loads: &LiveLoads<'_>,
        waiting: Waiting,
    ) -> OwnRegion {
        let known = self.own.get(model);
        let candidates = group.map(|group| group.group.candidates()).unwrap_or_default();
        let now = Now::of(loads, candidates);
        let since = |now: u64, then: Option<u64>| {
            // Without a report nothing can have happened since it.
            u32::try_from(now.saturating_sub(then.unwrap_or(now))).unwrap_or(u32::MAX)
        };
        OwnRegion {
            replicas: u32::try_from(candidates.len()).unwrap_or(u32::MAX),
            report: RegionReport {
                load: known.map(|known| known.load).unwrap_or_default(),
                age_ms: self.at.elapsed().as_secs_f32() * 1e3,
                sent: since(now.sent, known.map(|known| known.sent)),
                ended: since(now.ended, known.map(|known| known.ended)),
            },
            slots: now.slots,
            waiting,
            guests: 0,
            nodes: known.map_or(1, |known| known.nodes),
            prefill_ms: 0.0,
            stall_ms: 0.0,
            first_token_ms_max: None,
            rest_ms: 0.0,
            late_ms: None,
            price_ms: self.own_terms.price_ms,
            weight_permille: self.own_terms.weight_permille,
        }
    }

    /// Returns the other regions as they are now, in their order.
    pub fn candidates(
        &self,
        model: &ModelName,
        residency: &Residency,
        answered: impl Fn(&RegionName) -> Access,
    ) -> ByRegion<RegionCandidate> {
        let passed_ms = self.at.elapsed().as_secs_f32() * 1e3;
        let candidate = |other: &OtherRegion| {
            let known = other.models.get(model);
            let is_closed = known.is_none() || !other.is_reachable || !other.breaker.is_open();
            // A region that may not serve the request has no room to wait for.
            let access = match other.may_serve(residency) {
                false => Access::OutsideResidency,
                true if is_closed => Access::Unreachable,
                true => answered(&other.name),
            };
            RegionCandidate {
                access,
                report: known
                    .map(|known| known.report(other.age_ms + passed_ms))
                    .unwrap_or_default(),
                rtt_ms: other.rtt_ms,
                prefill_ms: 0.0,
                stall_ms: 0.0,
                pending_ms: 0.0,
                rest_ms: 0.0,
                is_shared: false,
                price_ms: other.terms.price_ms,
                weight_permille: other.terms.weight_permille,
                ramp_permille: other.ramp_permille,
                is_home: false,
                home_ms: 0.0,
            }
        };
        self.others.iter().map(candidate).collect()
    }

    /// Returns the other regions that no decision considers for a request, with the reasons. Call it
    /// for records alone.
    #[must_use]
    pub fn left_out(&self, model: Option<&ModelName>, residency: &Residency) -> Vec<LeftOutRegion> {
        let left_out = |other: &OtherRegion| {
            let why = other.left_out(model, residency)?;
            Some(LeftOutRegion { region: other.name.clone(), why })
        };
        self.others.iter().filter_map(left_out).collect()
    }
}

impl OtherRegion {
    /// Returns the reason for which no decision considers the region; `None` if one does.
    fn left_out(&self, model: Option<&ModelName>, residency: &Residency) -> Option<LeftOutReason> {
        let is_drained = self.terms.weight_permille == 0 || self.ramp_permille == 0;
        if !self.may_serve(residency) {
            Some(LeftOutReason::OutsideResidency)
        } else if !self.is_reachable {
            Some(LeftOutReason::Unreachable)
        } else if model.is_some_and(|model| !self.models.contains_key(model)) {
            Some(LeftOutReason::NoModel)
        } else if !self.breaker.is_open() {
            Some(LeftOutReason::CircuitOpen)
        } else {
            is_drained.then_some(LeftOutReason::Drained)
        }
    }

    /// Returns true if the region may serve a request with this residency.
    pub fn may_serve(&self, residency: &Residency) -> bool {
        residency.may_serve(&self.name, self.country)
    }
}

impl OtherModel {
    fn report(&self, age_ms: f32) -> RegionReport {
        let since = |now: u64, then: u64| u32::try_from(now.saturating_sub(then)).unwrap_or(0);
        RegionReport {
            load: self.load,
            age_ms,
            sent: since(self.counts.sent(), self.sent),
            ended: since(self.counts.ended(), self.ended),
        }
    }
}

/// Counts of this node at a group's replicas at this moment.
#[derive(Debug, Default)]
struct Now {
    sent: u64,
    ended: u64,
    /// Requests that the replicas would still take; `None` if one of them has no limit.
    slots: Option<u32>,
}

impl Now {
    fn of(loads: &LiveLoads<'_>, candidates: &[Candidate]) -> Self {
        let none = Self { slots: Some(0), ..Self::default() };
        candidates.iter().fold(none, |sum, candidate| {
            let replica = loads.view.replica(candidate.slot);
            let (in_flight, sent) = (replica.in_flight(), replica.started());
            let limit = candidate.in_flight_max.min(loads.limit(candidate.slot));
            let left = limit.saturating_sub(in_flight);
            // A single replica without a limit makes the slots unlimited.
            let is_limited = limit < u32::MAX;
            Self {
                sent: sum.sent + sent,
                ended: sum.ended + sent.saturating_sub(u64::from(in_flight)),
                slots: sum.slots.filter(|_| is_limited).map(|slots| slots.saturating_add(left)),
            }
        })
    }
}
