//! The candidates of a group as they are at one moment: which are usable, and how loaded.

use spillway_types::ReplicaSlot;

use crate::{Attempt, Candidate, Loads, Reason};

/// How many candidates a policy of constant cost looks at before it looks at all of them.
///
/// With half of a large group unusable, one decision in 256 has to look at all.
const PROBES: usize = 8;

/// The candidates, and what makes them usable or not.
pub(crate) struct Field<'a> {
    candidates: &'a [Candidate],
    tried: &'a [ReplicaSlot],
    loads: &'a dyn Loads,
}

impl<'a> Field<'a> {
    pub(crate) fn new(
        candidates: &'a [Candidate],
        tried: &'a [ReplicaSlot],
        loads: &'a dyn Loads,
    ) -> Self {
        Self { candidates, tried, loads }
    }

    /// Number of candidates, usable or not.
    pub(crate) fn len(&self) -> usize {
        self.candidates.len()
    }

    /// The candidate at `index` and its load; `None` if it must not be chosen.
    pub(crate) fn usable(&self, index: usize) -> Option<Usable> {
        let Candidate { slot, weight, in_flight_max, .. } = self.candidates[index];
        if self.tried.contains(&slot) {
            return None;
        }
        let in_flight = self.loads.in_flight(slot);
        (in_flight < in_flight_max).then_some(Usable { index, slot, weight, in_flight })
    }

    /// Draws indexes with `draw` until one is usable, a few times at most.
    ///
    /// Drawing again keeps the proportions that `draw` has among the usable candidates.
    pub(crate) fn draw_usable(&self, mut draw: impl FnMut() -> usize) -> Option<Usable> {
        (0..PROBES).find_map(|_| self.usable(draw()))
    }

    /// Draws among all usable candidates in proportion to `weigh`, in one pass.
    ///
    /// One pass because loads change meanwhile: totals of an earlier pass may no longer hold.
    pub(crate) fn draw_of_all(
        &self,
        rng: &mut fastrand::Rng,
        weigh: impl Fn(&Usable) -> u32,
    ) -> Option<Usable> {
        let mut chosen = None;
        let mut total = 0;
        for usable in self.all_usable() {
            let weight = u64::from(weigh(&usable));
            total += weight;
            if rng.u64(0..total) < weight {
                chosen = Some(usable);
            }
        }
        chosen
    }

    /// The usable candidate that carries the least for its weight.
    ///
    /// Of `k` equal ones it takes number `ticket % k`. Starting the search at a place that moves
    /// with the ticket would be one pass instead of two, but would favour those after a gap.
    pub(crate) fn lightest(&self, ticket: u64) -> Option<Usable> {
        let mut lightest: Option<Usable> = None;
        let mut equals: u64 = 0;
        for usable in self.all_usable() {
            match lightest {
                Some(best) if best.is_lighter_than(&usable) => {}
                Some(best) if !usable.is_lighter_than(&best) => equals += 1,
                _ => (lightest, equals) = (Some(usable), 1),
            }
        }
        let first = lightest?;
        if equals == 1 {
            return lightest;
        }
        let nth = usize::try_from(ticket % equals).unwrap_or_default();
        let mut same = (first.index..self.len())
            .filter_map(|index| self.usable(index))
            .filter(|usable| !first.is_lighter_than(usable));
        // Loads may have risen since the first pass, so that fewer than `equals` are left.
        same.nth(nth).or(Some(first))
    }

    /// The usable candidates, in the order of the group.
    pub(crate) fn all_usable(&self) -> impl Iterator<Item = Usable> {
        (0..self.len()).filter_map(|index| self.usable(index))
    }
}

/// A candidate that may be chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Usable {
    /// Its position in the group.
    pub(crate) index: usize,
    /// Its slot in the view.
    pub(crate) slot: ReplicaSlot,
    /// Its weight, at least 1.
    pub(crate) weight: u32,
    /// Requests in flight there.
    pub(crate) in_flight: u32,
}

impl Usable {
    /// Whether it would carry less for its weight than `other`, were it to get this request.
    ///
    /// The request itself counts: of two idle candidates the one with more weight is lighter.
    pub(crate) fn is_lighter_than(&self, other: &Self) -> bool {
        let own = (u64::from(self.in_flight) + 1) * u64::from(other.weight);
        let others = (u64::from(other.in_flight) + 1) * u64::from(self.weight);
        own < others
    }

    /// The attempt that goes there.
    pub(crate) fn because(self, reason: Reason) -> Attempt {
        Attempt { slot: self.slot, reason }
    }
}
