//! Candidates of a group at one moment: which of them are usable, and their load.

use std::cmp::Ordering;
use std::ops::{ControlFlow, RangeInclusive};

use spillway_types::{ReplicaSlot, Signals};

use crate::cohorts::Cohort;
use crate::{Attempt, Candidate, Loads, Moment, Reason, Snapshot};

/// Most candidates that a policy of constant cost looks at before it looks at all of them.
///
/// With half of a large group unusable, one decision in 256 has to look at all.
const PROBES: usize = 8;

/// Candidates, and the facts that make them usable or not.
pub(crate) struct Field<'a> {
    candidates: &'a [Candidate],
    tried: &'a [ReplicaSlot],
    loads: &'a dyn Loads,
    cohort: Cohort,
}

impl<'a> Field<'a> {
    /// Returns a field of all candidates.
    pub(crate) fn new(
        candidates: &'a [Candidate],
        tried: &'a [ReplicaSlot],
        loads: &'a dyn Loads,
    ) -> Self {
        Self { candidates, tried, loads, cohort: Cohort::All }
    }

    /// Returns this field with only the candidates of `cohort` usable.
    pub(crate) fn only(&self, cohort: Cohort) -> Self {
        Self { cohort, ..*self }
    }

    /// Returns the number of candidates, usable or not.
    pub(crate) fn len(&self) -> usize {
        self.candidates.len()
    }

    /// Returns the share of the weight that counts now of the candidate at `index`, usable or not.
    pub(crate) fn ramp_permille(&self, index: usize) -> u16 {
        self.candidates[index].ramp_permille
    }

    /// Returns the identity of the candidate at `index`.
    #[inline]
    pub(crate) fn identity(&self, index: usize) -> u64 {
        self.candidates[index].identity
    }

    /// Returns the full weight of the candidate at `index`, without slow start.
    pub(crate) fn base_weight(&self, index: usize) -> u32 {
        self.candidates[index].weight
    }

    /// Returns the longest part of the prompt that any replica has cached, in blocks; 0 if unknown.
    pub(crate) fn cached_blocks_max(&self) -> u32 {
        self.loads.cached_blocks_max()
    }

    /// Returns true if the candidate at `index` was tried before.
    #[inline]
    pub(crate) fn was_tried(&self, index: usize) -> bool {
        self.tried.contains(&self.candidates[index].slot)
    }

    /// Returns all that is known of the load at `index`, usable or not.
    #[inline]
    pub(crate) fn snapshot(&self, index: usize) -> Snapshot {
        self.loads.snapshot(self.candidates[index].slot)
    }

    /// Returns the answer of [`Field::usable`] for a candidate that was not tried, by a snapshot of
    /// it.
    #[inline]
    pub(crate) fn usable_by(&self, index: usize, snapshot: &Snapshot) -> Option<Usable> {
        let is_usable = self.is_usable_by(index, snapshot);
        is_usable.then(|| self.as_usable(index, snapshot.in_flight, snapshot.elsewhere))
    }

    /// Returns true if [`Field::usable_by`] returns the candidate.
    #[inline]
    pub(crate) fn is_usable_by(&self, index: usize, snapshot: &Snapshot) -> bool {
        let candidate = &self.candidates[index];
        self.cohort.has(candidate.ramp_permille)
            && snapshot.in_flight < candidate.in_flight_max.min(snapshot.limit)
    }

    /// Returns the candidate at `index` with its load; `None` if it must not be chosen.
    pub(crate) fn usable(&self, index: usize) -> Option<Usable> {
        let candidate = &self.candidates[index];
        let Candidate { slot, ramp_permille, in_flight_max, .. } = *candidate;
        if !self.cohort.has(ramp_permille) || self.tried.contains(&slot) {
            return None;
        }
        let in_flight = self.loads.in_flight(slot);
        let is_usable = in_flight < in_flight_max.min(self.loads.limit(slot));
        is_usable.then(|| self.as_usable(index, in_flight, self.loads.elsewhere(slot)))
    }

    /// Returns the leading blocks of the prompt that the candidate at `index` is expected to have
    /// cached.
    #[inline]
    pub(crate) fn cached_blocks_at(&self, index: usize) -> u32 {
        self.loads.cached_blocks(self.candidates[index].slot)
    }

    /// Calls `visit` with the index of each candidate that has so many leading blocks cached, until
    /// it breaks; see [`Loads::visit_cached`]. The candidates have to be in the order of their
    /// slots.
    pub(crate) fn visit_cached(
        &self,
        blocks: RangeInclusive<u32>,
        visit: &mut dyn FnMut(usize) -> ControlFlow<()>,
    ) -> bool {
        self.loads.visit_cached(blocks, &mut |slot| match self.index_of(slot) {
            Some(index) => visit(index),
            None => ControlFlow::Continue(()),
        })
    }

    /// Returns the index of a slot's candidate, of candidates in the order of their slots.
    fn index_of(&self, slot: ReplicaSlot) -> Option<usize> {
        // In a view of one large group, the index of most candidates is their slot.
        let is_there = self.candidates.get(slot.index()).is_some_and(|one| one.slot == slot);
        if is_there {
            return Some(slot.index());
        }
        self.candidates.binary_search_by_key(&slot, |candidate| candidate.slot).ok()
    }

    /// Returns the candidate at `index`, usable or not, with these requests in flight of this
    /// process and of others.
    #[inline]
    pub(crate) fn as_usable(&self, index: usize, in_flight: u32, elsewhere: u32) -> Usable {
        let candidate = &self.candidates[index];
        Usable {
            index,
            slot: candidate.slot,
            weight: candidate.effective_weight(),
            ramp_permille: candidate.ramp_permille,
            in_flight,
            elsewhere,
            next: self.cohort.part(index),
        }
    }

    /// Returns the first candidate that `is_it` accepts, if it is usable.
    pub(crate) fn usable_that(&self, is_it: impl Fn(&Candidate) -> bool) -> Option<Usable> {
        self.usable(self.candidates.iter().position(is_it)?)
    }

    /// Returns what is known of a candidate's load beyond this process.
    pub(crate) fn signals(&self, usable: &Usable) -> Signals {
        self.loads.signals(usable.slot)
    }

    /// Returns the leading blocks of the prompt that are expected in a candidate's cache.
    pub(crate) fn cached_blocks(&self, usable: &Usable) -> u32 {
        self.loads.cached_blocks(usable.slot)
    }

    /// Returns the number of requests that this process ever sent to a candidate.
    pub(crate) fn started(&self, usable: &Usable) -> u64 {
        self.loads.started(usable.slot)
    }

    /// Draws indexes with `draw` until one is usable, a few times at most.
    ///
    /// Drawing again keeps the proportions that `draw` has among the usable candidates.
    pub(crate) fn draw_usable(&self, mut draw: impl FnMut() -> Option<usize>) -> Option<Usable> {
        (0..PROBES).find_map(|_| self.usable(draw()?))
    }

    /// Draws among all usable candidates in proportion to `weigh`; a candidate of weight 0 is never
    /// drawn.
    pub(crate) fn draw_of_all(
        &self,
        rng: &mut fastrand::Rng,
        weigh: impl Fn(&Usable) -> f64,
    ) -> Option<Usable> {
        self.draws_of_all(rng, weigh).map(|[drawn]| drawn)
    }

    /// Draws `N` times as [`Field::draw_of_all`] does, so that one candidate may come up twice.
    ///
    /// It makes one pass, since loads change all the time: totals of an earlier pass may no longer
    /// hold.
    pub(crate) fn draws_of_all<const N: usize>(
        &self,
        rng: &mut fastrand::Rng,
        weigh: impl Fn(&Usable) -> f64,
    ) -> Option<[Usable; N]> {
        let mut drawn: Option<[Usable; N]> = None;
        let mut total = 0.0;
        for usable in self.all_usable() {
            let weight = weigh(&usable);
            if weight <= 0.0 {
                continue;
            }
            total += weight;
            for place in drawn.get_or_insert([usable; N]) {
                // Reservoir sampling: a candidate replaces the earlier ones by its share of the
                // weight so far.
                if rng.f64() * total < weight {
                    *place = usable;
                }
            }
        }
        drawn
    }

    /// Returns the usable candidate with the least load for its weight.
    pub(crate) fn lightest(&self, moment: &mut Moment<'_>) -> Option<Usable> {
        self.least(moment, Usable::load)
    }

    /// Returns the usable candidate with the smallest `cost`, in one pass.
    ///
    /// Of equal ones it is the one whose turn it is among all candidates; if none of them has the
    /// turn, chance decides. With number `ticket % k` of `k` equal ones, requests that overlap in
    /// step with the tickets could pass over one candidate for ever. With the next one after the
    /// turn, candidates that stand after a busy one would get more.
    pub(crate) fn least(
        &self,
        moment: &mut Moment<'_>,
        cost: impl Fn(&Usable) -> f64,
    ) -> Option<Usable> {
        let turn = moment.ticket.checked_rem(self.len() as u64)?;
        let has_turn = |usable: &Usable| usable.index as u64 == turn;
        let mut least: Option<(Usable, f64)> = None;
        let mut equals: u64 = 0;
        for usable in self.all_usable() {
            let cost = cost(&usable);
            let order = least.map_or(Ordering::Less, |(_, lowest)| cost.total_cmp(&lowest));
            match (order, &mut least) {
                (Ordering::Equal, Some((chosen, _))) => {
                    equals += 1;
                    let is_drawn = moment.rng.u64(..equals) == 0 && !has_turn(chosen);
                    if is_drawn || has_turn(&usable) {
                        *chosen = usable;
                    }
                }
                (Ordering::Less, _) => (least, equals) = (Some((usable, cost)), 1),
                _ => {}
            }
        }
        least.map(|(chosen, _)| chosen)
    }

    /// Returns the usable candidates, in the order of the group.
    pub(crate) fn all_usable(&self) -> impl Iterator<Item = Usable> {
        (0..self.len()).filter_map(|index| self.usable(index))
    }
}

/// A candidate that may be chosen.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Usable {
    /// Position in the group.
    pub(crate) index: usize,
    /// Slot in the view.
    pub(crate) slot: ReplicaSlot,
    /// Weight that counts now, in thousandths; at least 1.
    pub(crate) weight: u64,
    /// Share of the weight that counts now, 1 to 1,000.
    pub(crate) ramp_permille: u16,
    /// Requests that this process has in flight there.
    pub(crate) in_flight: u32,
    /// Requests that other processes have in flight there, by their last report.
    pub(crate) elsewhere: u32,
    /// Part of the request to be placed that counts here: 1, or less during slow start.
    pub(crate) next: f64,
}

impl Usable {
    /// Returns the requests in flight there, as far as known.
    #[inline]
    pub(crate) fn known(&self) -> f32 {
        self.in_flight as f32 + self.elsewhere as f32
    }

    /// Returns the load for its weight, with the request to be placed.
    ///
    /// The request counts: of two idle candidates the one with more weight is lighter. Equal loads
    /// give equal numbers, since a division rounds the exact quotient.
    pub(crate) fn load(&self) -> f64 {
        (f64::from(self.in_flight) + self.next) / self.weight as f64
    }

    /// Returns an attempt at this candidate.
    pub(crate) fn because(self, reason: Reason) -> Attempt {
        Attempt { slot: self.slot, reason, prediction: None }
    }
}
