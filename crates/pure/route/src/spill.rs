//! Spillover to other regions, local first: a request is served in its own region, in another one,
//! later, or not at all.
//!
//! [`spill()`] is called for each request that its own region may not be able to serve at once,
//! with the last reports of regions and this node's actions since. It compares predicted costs in
//! milliseconds of time to first token. [`admit_guest()`] is the other side: it decides if a region
//! takes a forwarded request. Both are stateless; callers keep a [`TrafficHistory`].

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
pub use guests::{Guest, GuestLack, admit_guest, shed_state};
pub use ramp::ramp_permille;
pub use region::{Access, OwnRegion, RegionCandidate, RegionReport, Waiting};
pub use terms::SpillTerms;
pub use verdict::{ByRegion, Judged, Objection, SpillPlan, SpillReason, SpillVerdict};

use crate::Moment;
use weighing::Weighing;

/// Hop limit: most times that a request is forwarded. Once: a region that has taken a guest serves
/// or refuses it, so that no request travels in circles and a refusal always comes from the next
/// node.
pub const HOPS_MAX: u8 = 1;

/// Decides where a request goes that was not sent to a replica yet.
///
/// - A request of a session goes to the session's home region if that shows room.
/// - An own region with room serves, unless another one with room costs clearly less, including the
///   network ([`SpillTerms::gain_min_ms`]).
/// - Else the request goes to the region that shows room at the least cost, if that is less than
///   the cost of waiting here. A region without replicas forwards to any.
/// - Else it waits in this node's queue, if that has room and the request outlives the wait.
/// - If it can't wait, it goes to any region that shows room and can still answer in time.
/// - Else it is shed, with the time after which a slot is predicted: at once if no region shows
///   room.
///
/// Where the route has an objective ([`OwnRegion::first_token_ms_max`]), a slot that can't keep it
/// counts as one that comes too late. A slot that is free right now is too late only if that was
/// predicted ([`OwnRegion::late_ms`]).
///
/// A request that another region sent here is served or shed and never forwarded again. `others`
/// has each other region once, in any order; the plan refers to regions by their index in it. After
/// a refusal, call it again with that candidate's [`Access::Refused`]. Whenever a report comes in,
/// call it again for waiting requests: this is how requests leave the queue of a node without
/// replicas.
///
/// `O(regions)`, plus a sort of the cheaper regions. Allocates nothing if the own region has room
/// and keeps the request ([`OwnRegion::keeps`]), nor for up to 64 other regions.
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
    // The common case: no other region has to be weighed.
    if has_room && (is_guest || (home.is_none() && own.keeps(others, terms))) {
        return SpillPlan::own();
    }
    let deadline_ms = inquiry.deadline.remaining(moment.now).as_secs_f32() * 1_000.0;
    let weighing = Weighing::new(own, others, terms, deadline_ms);
    // The home of a session comes before all costs.
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
