//! Region as the decision sees it: its report, and the changes since.

use spillway_types::ModelLoad;

use super::cost::sound;
use super::terms::SpillTerms;

/// Knowledge about one model in one region.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct RegionReport {
    /// Load that the region reported: counts at one moment, not averages.
    pub load: ModelLoad,
    /// Age of that moment in milliseconds, including the network.
    pub age_ms: f32,
    /// Requests that this node sent there too late for the report: after it was made, less the time
    /// of one way.
    pub sent: u32,
    /// Requests of this node that ended there, unknown to the report: this node learned of them
    /// after the report was made, plus the time of one way.
    pub ended: u32,
}

/// The region of this node.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct OwnRegion {
    /// Replicas that may get requests for the model; 0 on an edge node, which never serves.
    pub replicas: u32,
    /// Report of the region without this node's own queue. Its `sent` and `ended` count requests
    /// handed to replicas.
    pub report: RegionReport,
    /// Requests that this node may hand to replicas right now, by their limits and its claims;
    /// `None` if no replica has a limit: the report decides then.
    pub slots: Option<u32>,
    /// Backlog of this node's queue.
    pub waiting: Waiting,
    /// Guests in flight in the whole region.
    pub guests: u32,
    /// Nodes of the region that serve clients, with this one. This node learns only by the next
    /// report what the others send elsewhere, and assumes that each sends as much as itself.
    pub nodes: u32,
    /// Milliseconds to read the part of the prompt that is not cached here; 0 if unknown. If a
    /// replica was predicted for the request, its wait there is included.
    pub prefill_ms: f32,
    /// Cost in milliseconds of that reading to the requests that run at the replica.
    pub stall_ms: f32,
    /// Price that the operator sets on the region, in milliseconds.
    pub price_ms: f32,
    /// Weight that the operator gives the region, in thousandths; at 0 it takes no guests.
    pub weight_permille: u16,
    /// Milliseconds left until the first token of this request has to come, by the objective of its
    /// route; `None` without an objective. If no region can keep it, the request is shed rather
    /// than served late.
    pub first_token_ms_max: Option<f32>,
    /// Milliseconds from the first token to the end of the reply here, if the client gets the reply
    /// in one piece; 0 for a stream, or if unknown. The deadline is for the end of such a reply.
    pub rest_ms: f32,
    /// Milliseconds until the first token at the free replica that was chosen, or until the end of a
    /// reply in one piece, if that is too late for the request ([`late_ms()`]): the region then
    /// counts as one without room. `None` if the reply comes in time, if no replica is free, or if
    /// the time is unknown.
    ///
    /// [`late_ms()`]: crate::late_ms()
    pub late_ms: Option<f32>,
}

/// Requests in a node's queue before and behind a request that would join it now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Waiting {
    /// Requests that wait and would be served before this one.
    pub ahead: u32,
    /// Milliseconds until the turn, by the queue's service rate and earlier promises; `None` if
    /// that is unknown: the region's report decides then.
    pub wait_ms: Option<u32>,
    /// All requests that wait, including those behind.
    pub all: u32,
    /// True if the queue takes one more request.
    pub has_room: bool,
}

/// Region that a request may be forwarded to.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RegionCandidate {
    /// Permission to ask the region at all.
    pub access: Access,
    /// Last report of the region, and changes since.
    pub report: RegionReport,
    /// Smoothed round-trip time, in milliseconds.
    pub rtt_ms: f32,
    /// Milliseconds to read the part of the prompt that is not cached there; 0 if unknown.
    pub prefill_ms: f32,
    /// Cost in milliseconds of that reading to the requests that run at a replica there.
    pub stall_ms: f32,
    /// Milliseconds to read the prompts that wait to be read at the replica there that has the
    /// fewest; 0 if unknown.
    pub pending_ms: f32,
    /// True if what is cached there of the prompt is read by others than this conversation, so that
    /// the own region would be asked for it again.
    pub is_shared: bool,
    /// Milliseconds from the first token to the end of the reply there, if the client gets the reply
    /// in one piece; 0 for a stream, or if unknown.
    pub rest_ms: f32,
    /// Price that the operator sets on the region, in milliseconds.
    pub price_ms: f32,
    /// Weight that the operator gives the region, in thousandths: the share of requests for which
    /// it is a candidate. 0 means drained; more than 1000 counts as 1000.
    pub weight_permille: u16,
    /// Part of that share that counts in slow start, after the region has come back, in
    /// thousandths.
    pub ramp_permille: u16,
    /// True if the request's session has its home there. The request then goes there as long as the
    /// region can take it at once, whatever the cost elsewhere.
    pub is_home: bool,
    /// Milliseconds by which the region is preferred because it served the same conversation
    /// before.
    pub home_ms: f32,
}

/// Permission to ask a region to serve a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// The two regions receive each other's reports, and the region has not refused this request.
    // Ready => (Unreachable | Refused | OutsideResidency)
    Ready,
    /// The region is silent, or no longer receives this region's reports, or no connection leads
    /// there.
    // Unreachable => Ready
    Unreachable,
    /// The region has refused this very request, and has not reported since.
    // Refused => Ready
    Refused,
    /// The residency rules of the request do not allow the region.
    // OutsideResidency => Ready
    OutsideResidency,
}

impl Access {
    /// Returns true if the region serves such requests, even if it has refused this one.
    #[must_use]
    pub fn is_possible(self) -> bool {
        matches!(self, Self::Ready | Self::Refused)
    }
}

impl OwnRegion {
    /// Returns true if a replica can begin with a request now, and in time. The request is then
    /// served here, unless another region costs clearly less.
    ///
    /// Without a prompt to read ([`OwnRegion::prefill_ms`] of 0) no other region needs to be looked
    /// at.
    #[must_use]
    pub fn has_room(&self) -> bool {
        let is_free = match self.slots {
            Some(slots) => slots > 0,
            None => self.report.has_room(0.0),
        };
        self.replicas > 0 && self.waiting.ahead == 0 && is_free && self.late_ms.is_none()
    }
}

impl OwnRegion {
    /// Returns true if none of these regions can be so much cheaper that a request leaves a region
    /// with room. This quick check may return false without need; [`spill()`] then weighs them.
    ///
    /// [`spill()`]: super::spill()
    #[must_use]
    pub fn keeps(&self, others: &[RegionCandidate], terms: &SpillTerms) -> bool {
        // Another region costs at least its round trip, and what serving costs there.
        let bound_ms = self.serving_ms() - self.gain_ms(terms);
        let is_cheaper = |other: &RegionCandidate| {
            other.access == Access::Ready && sound(other.rtt_ms) + other.serving_ms() < bound_ms
        };
        self.has_room() && (bound_ms <= 0.0 || !others.iter().any(is_cheaper))
    }

    /// Returns the milliseconds that a request has to gain to leave a region that has room.
    pub(super) fn gain_ms(&self, terms: &SpillTerms) -> f32 {
        sound(terms.gain_min_ms) + sound(terms.gain_share) * self.serving_ms()
    }

    /// Returns the milliseconds that serving costs here at once.
    fn serving_ms(&self) -> f32 {
        sound(self.prefill_ms) + sound(self.stall_ms) + sound(self.price_ms)
    }
}

impl RegionCandidate {
    /// Returns the milliseconds that serving costs there at once, without the network.
    fn serving_ms(&self) -> f32 {
        sound(self.prefill_ms) + sound(self.stall_ms) + sound(self.price_ms)
    }
}

impl RegionReport {
    /// Returns true if a request finds a slot at once that leaves `reserve` slots free, by the
    /// report and this node's own requests. Without a known capacity the queue decides.
    pub(super) fn has_room(&self, reserve: f32) -> bool {
        let load = &self.load;
        let is_waiting = load.queued > 0.0 || load.wait_ms.is_some_and(|wait_ms| wait_ms > 0.0);
        let is_full = load
            .capacity
            .is_some_and(|capacity| self.taken() + self.change() + 1.0 + reserve > sound(capacity));
        !is_waiting && !is_full
    }

    /// Returns the requests that waited or ran when the report was made.
    pub(super) fn taken(&self) -> f32 {
        sound(self.load.queued) + sound(self.load.running)
    }

    /// Returns the requests that this node added since, less those that ended.
    #[must_use]
    pub fn change(&self) -> f32 {
        (f64::from(self.sent) - f64::from(self.ended)) as f32
    }
}
