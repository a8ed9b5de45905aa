//! A region as the decision sees it: what it reported, and what has become of that since.

use spillway_types::ModelLoad;

use super::cost::sound;
use super::terms::SpillTerms;

/// What is known of one model in one region.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct RegionReport {
    /// What the region reported: counts of one moment, not averages.
    pub load: ModelLoad,
    /// How long ago that moment was, in milliseconds, its way here included.
    pub age_ms: f32,
    /// Requests of this node that began their way there too late to be in the report: after the
    /// moment it was made, less the time of one way.
    pub sent: u32,
    /// Requests of this node there whose end the report doesn't know of: those of which this node
    /// heard after that moment, plus the time of one way.
    pub ended: u32,
}

/// The region of this node.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct OwnRegion {
    /// Replicas that may be given requests for the model; 0 on an edge node, which never serves.
    pub replicas: u32,
    /// The region without what waits in this node's own queue. Its `sent` and `ended` are of
    /// requests handed to replicas.
    pub report: RegionReport,
    /// Requests that this node may hand to replicas right now, by their limits and its claims;
    /// `None` if no replica has a limit, and then the report decides.
    pub places: Option<u32>,
    /// What waits in this node's queue.
    pub waiting: Waiting,
    /// Guests in flight in the whole region.
    pub guests: u32,
    /// Nodes of the region that serve clients, this one included. What they send elsewhere this
    /// node learns only by the next report, and assumes that each sends what it does.
    pub nodes: u32,
    /// Milliseconds to read the part of the prompt that is not cached here; 0 if unknown. Where a
    /// replica has been predicted for the request, its wait there as well.
    pub prefill_ms: f32,
    /// What the operator adds to the region's cost, in milliseconds.
    pub price_ms: f32,
    /// The operator's weight of the region, in thousandths; at 0 it takes no guests.
    pub weight_permille: u16,
    /// Milliseconds that are left until the first token of this request has to come, by the objective
    /// of its route; `None` if there is none. Where it can be kept nowhere, the request is shed rather
    /// than served late.
    pub first_token_ms_max: Option<f32>,
    /// Milliseconds until the first token at the free replica that was chosen, if that is too late for
    /// the request ([`late_ms()`]): then the region counts as one without room. `None` if it is in time,
    /// if no replica is free, and if nobody knows.
    ///
    /// [`late_ms()`]: crate::late_ms()
    pub late_ms: Option<f32>,
}

/// What waits in a node's queue before and behind a request that would join it now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Waiting {
    /// Requests that wait and would be served before it.
    pub ahead: u32,
    /// Milliseconds until its turn, by the rate at which this queue is served and what was promised
    /// before it; `None` if that is not known, and then the region's report decides.
    pub wait_ms: Option<u32>,
    /// Requests that wait, those behind it included.
    pub all: u32,
    /// Whether one more is taken.
    pub has_room: bool,
}

/// A region that a request may be forwarded to.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RegionCandidate {
    /// Whether it may be asked at all.
    pub access: Access,
    /// What is known of it.
    pub report: RegionReport,
    /// Smoothed time there and back, in milliseconds.
    pub rtt_ms: f32,
    /// Milliseconds to read the part of the prompt that is not cached there; 0 if unknown.
    pub prefill_ms: f32,
    /// What the operator adds to the region's cost, in milliseconds.
    pub price_ms: f32,
    /// The operator's weight of the region, in thousandths: the share of requests for which it is a
    /// candidate. 0 is drained; more than 1000 counts as 1000.
    pub weight_permille: u16,
    /// The part of that share that counts after the region has come back, in thousandths.
    pub ramp_permille: u16,
    /// Whether the last request that this node forwarded went there.
    pub is_current: bool,
    /// Whether the request's session is at home there: then it goes there as long as the region can
    /// take it at once, whatever the others cost.
    pub is_home: bool,
    /// Milliseconds by which it is preferred to other regions because it served the same conversation
    /// before.
    pub home_ms: f32,
}

/// Whether a region may be asked to serve a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// It is heard, hears this region, and has not refused this request.
    // Ready => (Unreachable | Refused)
    Ready,
    /// It is silent, or it no longer hears this region, or no connection leads there.
    // Unreachable => Ready
    Unreachable,
    /// It has refused this very request, and has not reported since.
    // Refused => Ready
    Refused,
}

impl OwnRegion {
    /// Whether a replica can begin with a request now, in time: then it is served here, unless another region
    /// has much more of its prompt cached.
    ///
    /// Without a prompt to read ([`OwnRegion::prefill_ms`] of 0) no other region need be looked at.
    #[must_use]
    pub fn has_room(&self) -> bool {
        let is_free = match self.places {
            Some(places) => places > 0,
            None => self.report.has_room(0.0),
        };
        self.replicas > 0 && self.waiting.ahead == 0 && is_free && self.late_ms.is_none()
    }
}

impl OwnRegion {
    /// Whether none of these regions can be so much cheaper that a request leaves a region that has
    /// room. A quick look that may say no in vain; [`spill()`] then weighs them.
    ///
    /// [`spill()`]: super::spill()
    #[must_use]
    pub fn keeps(&self, others: &[RegionCandidate], terms: &SpillTerms) -> bool {
        let bound_ms = sound(self.prefill_ms) + sound(self.price_ms) - self.gain_ms(terms);
        let is_cheaper = |other: &RegionCandidate| {
            other.access == Access::Ready
                && sound(other.rtt_ms) + sound(other.prefill_ms) + sound(other.price_ms) < bound_ms
        };
        self.has_room() && (bound_ms <= 0.0 || !others.iter().any(is_cheaper))
    }

    /// Milliseconds that a request has to gain to leave a region that has room.
    pub(super) fn gain_ms(&self, terms: &SpillTerms) -> f32 {
        let own_ms = sound(self.prefill_ms) + sound(self.price_ms);
        sound(terms.margin_ms) + sound(terms.gain_min_ms) + sound(terms.gain_share) * own_ms
    }
}

impl RegionReport {
    /// Whether a request finds a place at once that leaves `reserve` places free, as far as the
    /// report and this node's own requests tell. Where nobody knows the capacity the queue decides.
    pub(super) fn has_room(&self, reserve: f32) -> bool {
        let load = &self.load;
        let is_waiting = load.queued > 0.0 || load.wait_ms.is_some_and(|wait_ms| wait_ms > 0.0);
        let is_full = load
            .capacity
            .is_some_and(|capacity| self.taken() + self.change() + 1.0 + reserve > sound(capacity));
        !is_waiting && !is_full
    }

    /// Requests that waited or ran when the report was made.
    pub(super) fn taken(&self) -> f32 {
        sound(self.load.queued) + sound(self.load.running)
    }

    /// Requests that this node alone has added since, less those that ended.
    pub(super) fn change(&self) -> f32 {
        (f64::from(self.sent) - f64::from(self.ended)) as f32
    }
}
