//! Guests of a region, which are requests from other regions: its own clients come first.

use spillway_types::ShedState;

use super::cost::sound;
use super::pace::RegionMeans;
use super::region::OwnRegion;
use super::terms::SpillTerms;

/// Answer to a request that another region forwarded.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Guest {
    /// The request is served here.
    Welcome,
    /// The request is not served here.
    Refused {
        /// Milliseconds after which a guest is predicted to be welcome, if nothing else comes in.
        wait_ms: f32,
        /// Resource that the guest lacks; `None` if it is refused for another reason than the
        /// replicas' limits.
        lack: Option<GuestLack>,
    },
}

/// Resource that a guest lacks where nothing waits. A limit that is a guess grows by it
/// ([`LoadSample::guest_lack`](crate::LoadSample::guest_lack)).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GuestLack {
    /// A slot beyond the reserve of the region's own clients.
    Reserve,
    /// A slot at a replica that answers what it has: too many requests wait there for their first token.
    Pace,
}

/// Decides about a guest, by what this node knows when the guest arrives.
///
/// A guest is welcome while nothing waits here and its slot leaves the reserve free. That rule
/// alone keeps guests from starving the region's own clients. A fixed cap on their share, which
/// [`SpillTerms::guests_max_permille`] can add, refuses guests for slots that stay empty. Where no
/// capacity is known, guests are welcome while nothing waits.
#[must_use]
pub fn admit_guest(own: &OwnRegion, terms: &SpillTerms) -> Guest {
    let is_serving = own.replicas > 0 && own.weight_permille > 0;
    let is_entitled = is_serving && own.waiting.all == 0 && has_guest_share(own, terms);
    let lack = if !own.report.has_room(reserve(own.report.load.capacity, terms)) {
        Some(GuestLack::Reserve)
    } else if own.slots == Some(0) {
        Some(GuestLack::Pace)
    } else {
        None
    };
    if is_entitled && lack.is_none() {
        return Guest::Welcome;
    }
    // Other regions say nothing about a wait in this one.
    let usual = RegionMeans::of(&[], terms);
    let turn_ms = usual.turn_ms(&own.report);
    let more = own.report.change() + own.waiting.all as f32;
    let ahead = usual.guests_ahead(&own.report, turn_ms, terms) + more;
    Guest::Refused { wait_ms: ahead.max(1.0) * turn_ms, lack: lack.filter(|_| is_entitled) }
}

impl OwnRegion {
    /// Adds the guests that are served, and those whose slots no report and no replica knows of
    /// yet.
    ///
    /// `coming` guests were welcomed by this node before this one. As many are assumed at each
    /// other node of the region, since the same regions ask all nodes at the same time, and reports
    /// come late. `served` is the number of guests that this node serves.
    pub fn add_guests(&mut self, coming: u32, served: u32) {
        let nodes = self.nodes.max(1);
        let report = &mut self.report;
        let new = report.sent.saturating_add(coming).saturating_sub(report.ended);
        // Each sibling node is assumed to have as many new guests.
        let elsewhere = new.saturating_mul(nodes - 1);
        report.sent = report.sent.saturating_add(coming).saturating_add(elsewhere);
        self.slots = self.slots.map(|slots| slots.saturating_sub(coming));
        self.guests = served.saturating_mul(nodes);
    }
}

/// Returns the state that this node reports to other regions, so that they don't forward requests
/// that it would refuse.
#[must_use]
pub fn shed_state(own: &OwnRegion, terms: &SpillTerms) -> ShedState {
    // First: a region without a queue has slots like any other.
    if admit_guest(own, terms) == Guest::Welcome {
        ShedState::Open
    } else if own.waiting.has_room {
        ShedState::Reserved
    } else {
        ShedState::Shedding
    }
}

/// Returns the slots kept free for the region's own clients; 0 if the capacity is unknown.
pub(super) fn reserve(capacity: Option<f32>, terms: &SpillTerms) -> f32 {
    let capacity = capacity.map_or(0.0, sound);
    let share = (capacity * f32::from(terms.reserve_permille) / 1_000.0).floor();
    // A small region keeps one slot as well, if that leaves one for guests.
    let least = if capacity >= 2.0 && terms.reserve_permille > 0 { 1.0 } else { 0.0 };
    share.max(least)
}

fn has_guest_share(own: &OwnRegion, terms: &SpillTerms) -> bool {
    let Some(permille) = terms.guests_max_permille else { return true };
    let load = &own.report.load;
    // Where no capacity is known, the requests that run and this one count as the whole.
    let whole = load.capacity.map_or_else(|| sound(load.running) + 1.0, sound);
    own.guests as f32 + 1.0 <= whole * f32::from(permille) / 1_000.0
}

#[cfg(test)]
#[path = "guests_test.rs"]
mod guests_test;
