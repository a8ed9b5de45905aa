//! Where a request is served: in its own region, in another one, later, or not at all.
//!
//! [`spill()`] is called for each request that its own region may not be able to serve at once, with
//! what regions last reported and what this node has done since. It compares predicted costs, which
//! are milliseconds of time to first token. [`admit_guest()`] is the other side: whether a region takes what another one sends.
//! Nothing here keeps state between calls; [`TrafficHistory`] is what callers keep.

mod cost;
mod count_history;
mod guests;
mod pace;
mod ramp;
mod region;
mod terms;
mod verdict;
mod weighing;

use spillway_types::Inquiry;

pub use cost::SpillCost;
pub use count_history::{CountHistory, TrafficHistory};
pub use guests::{Guest, admit_guest, shed_state};
pub use ramp::ramp_permille;
pub use region::{Access, OwnRegion, RegionCandidate, RegionReport, Waiting};
pub use terms::SpillTerms;
pub use verdict::{Judged, Objection, SpillPlan, SpillReason, SpillVerdict};

use crate::Moment;
use weighing::Weighing;

/// How often a request is forwarded at most. Once: a region that has taken a guest serves it or
/// refuses it, so that no request travels in circles and a refusal always comes from the next node.
pub const HOPS_MAX: u8 = 1;

/// Decides where a request goes that no replica has been asked for yet.
///
/// - A request of a session goes to the region where its session is at home, if that shows room.
/// - An own region with room serves, unless another one has so much more of the prompt cached that
///   it is sooner, its way included ([`SpillTerms::gain_min_ms`]).
/// - Else the request goes to the region that shows room at the least cost, if that is less than the
///   cost of waiting here. A region without replicas forwards to any.
/// - Else it waits in this node's queue, if that has room and the request outlives the wait.
/// - If it can't wait, it goes to whatever region shows room and can still answer in time.
/// - Else it is shed, with the time after which a place is predicted: at once if no region shows room.
///
/// Where the route has an objective ([`OwnRegion::first_token_ms_max`]), a place that can't keep it
/// counts as one that comes too late. A place that is free right now is too late only if it was
/// predicted to be ([`OwnRegion::late_ms`]).
///
/// A request that another region sent here is served or shed and never forwarded again. `others`
/// holds each other region once, in any order; indices in the plan mean places in it. After a
/// refusal call it again, with that candidate's [`Access::Refused`]. Call it again for what waits
/// whenever a report comes in: it is how requests leave the queue of a node without replicas.
///
/// `O(regions)`, but for sorting those that cost less. Allocates nothing if the own region has
/// room and keeps it ([`OwnRegion::keeps`]), nor for up to 8 other regions.
#[must_use]
pub fn spill(
    inquiry: &Inquiry,
    own: &OwnRegion,
    others: &[RegionCandidate],
    terms: &SpillTerms,
    moment: &mut Moment<'_>,
) -> SpillPlan {
    let has_room = own.has_room();
    let is_guest = inquiry.hop >= HOPS_MAX;
    let home = others.iter().position(|other| other.is_home).filter(|_| !is_guest);
    if has_room && (is_guest || (home.is_none() && own.keeps(others, terms))) {
        return SpillPlan::own();
    }
    let deadline_ms = inquiry.deadline.remaining(moment.now).as_secs_f32() * 1_000.0;
    let weighing = Weighing::new(own, others, terms, deadline_ms);
    if let Some(plan) = home.and_then(|home| weighing.go_home(home)) {
        return plan;
    }
    if has_room {
        return weighing.decide_with_room(moment.rng);
    }
    if inquiry.hop >= HOPS_MAX {
        return weighing.shed_guest(moment.rng);
    }
    weighing.decide(moment.rng)
}

#[cfg(test)]
mod closed_loop_test;
#[cfg(test)]
mod invariants_test;
#[cfg(test)]
mod spill_test;
#[cfg(test)]
mod test_cases;
#[cfg(test)]
mod test_regions;
