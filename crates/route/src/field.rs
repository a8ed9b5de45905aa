//! The candidates of a group as they are at one moment: which are usable, and how loaded.

use std::cmp::Ordering;

use spillway_types::{ReplicaSlot, Signals};

use crate::cohorts::Cohort;
use crate::{Attempt, Candidate, Loads, Moment, Reason, Snapshot};

/// How many candidates a policy of constant cost looks at before it looks at all of them.
///
/// With half of a large group unusable, one decision in 256 has to look at all.
const PROBES: usize = 8;

/// The candidates, and what makes them usable or not.
pub(crate) struct Field<'a> {
    candidates: &'a [Candidate],
    tried: &'a [ReplicaSlot],
    loads: &'a dyn Loads,
    cohort: Cohort,
}

impl<'a> Field<'a> {
    /// All candidates.
    pub(crate) fn new(
        candidates: &'a [Candidate],
        tried: &'a [ReplicaSlot],
        loads: &'a dyn Loads,
    ) -> Self {
        Self { candidates, tried, loads, cohort: Cohort::All }
    }

    /// The same with only those of a cohort usable.
    pub(crate) fn only(&self, cohort: Cohort) -> Self {
        Self { cohort, ..*self }
    }

    /// Number of candidates, usable or not.
    pub(crate) fn len(&self) -> usize {
        self.candidates.len()
    }

    /// The part of the weight that counts now, of the candidate at `index`, usable or not.
    pub(crate) fn ramp_permille(&self, index: usize) -> u16 {
        self.candidates[index].ramp_permille
    }

    /// The identity of the candidate at `index`.
    #[inline]
    pub(crate) fn identity(&self, index: usize) -> u64 {
        self.candidates[index].identity
    }

    /// The weight of the candidate at `index` once it is warm.
    pub(crate) fn base_weight(&self, index: usize) -> u32 {
        self.candidates[index].weight
    }

    /// The longest part of the prompt that any replica has, in blocks; 0 if that is not known.
    pub(crate) fn cached_blocks_max(&self) -> u32 {
        self.loads.cached_blocks_max()
    }

    /// Whether the candidate at `index` was tried before.
    #[inline]
    pub(crate) fn was_tried(&self, index: usize) -> bool {
        self.tried.contains(&self.candidates[index].slot)
    }

    /// All that is known of the load at `index`, usable or not.
    #[inline]
    pub(crate) fn snapshot(&self, index: usize) -> Snapshot {
        self.loads.snapshot(self.candidates[index].slot)
    }

    /// What [`Field::usable`] says of one that was not tried, by a snapshot of it.
    #[inline]
    pub(crate) fn usable_by(&self, index: usize, snapshot: &Snapshot) -> Option<Usable> {
        let candidate = &self.candidates[index];
        let is_usable = self.cohort.has(candidate.ramp_permille)
            && snapshot.in_flight < candidate.in_flight_max.min(snapshot.limit);
        is_usable.then(|| self.as_usable(index, (snapshot.in_flight, snapshot.elsewhere)))
    }

    /// The candidate at `index` and its load; `None` if it must not be chosen.
    pub(crate) fn usable(&self, index: usize) -> Option<Usable> {
        let candidate = &self.candidates[index];
        let Candidate { slot, ramp_permille, in_flight_max, .. } = *candidate;
        if !self.cohort.has(ramp_permille) || self.tried.contains(&slot) {
            return None;
        }
        let in_flight = self.loads.in_flight(slot);
        let is_usable = in_flight < in_flight_max.min(self.loads.limit(slot));
        is_usable.then(|| self.as_usable(index, (in_flight, self.loads.elsewhere(slot))))
    }

    /// Leading blocks of the prompt that the candidate at `index` is expected to have cached.
    #[inline]
    pub(crate) fn cached_blocks_at(&self, index: usize) -> u32 {
        self.loads.cached_blocks(self.candidates[index].slot)
    }

    /// The candidate at `index` as if it may be chosen, with what this process and others have there.
    #[inline]
    pub(crate) fn as_usable(&self, index: usize, (in_flight, elsewhere): (u32, u32)) -> Usable {
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

    /// The first candidate of this kind, if it is usable.
    pub(crate) fn usable_that(&self, is_it: impl Fn(&Candidate) -> bool) -> Option<Usable> {
        self.usable(self.candidates.iter().position(is_it)?)
    }

    /// What is known of a candidate's load beyond this process.
    pub(crate) fn signals(&self, usable: &Usable) -> Signals {
        self.loads.signals(usable.slot)
    }

    /// Leading blocks of the prompt that are expected in a candidate's cache.
    pub(crate) fn cached_blocks(&self, usable: &Usable) -> u32 {
        self.loads.cached_blocks(usable.slot)
    }

    /// Requests ever sent to a candidate by this process.
    pub(crate) fn started(&self, usable: &Usable) -> u64 {
        self.loads.started(usable.slot)
    }

    /// Draws indexes with `draw` until one is usable, a few times at most.
    ///
    /// Drawing again keeps the proportions that `draw` has among the usable candidates.
    pub(crate) fn draw_usable(&self, mut draw: impl FnMut() -> Option<usize>) -> Option<Usable> {
        (0..PROBES).find_map(|_| self.usable(draw()?))
    }

    /// Draws among all usable candidates in proportion to `weigh`; those with 0 are never drawn.
    pub(crate) fn draw_of_all(
        &self,
        rng: &mut fastrand::Rng,
        weigh: impl Fn(&Usable) -> f64,
    ) -> Option<Usable> {
        self.draws_of_all(rng, weigh).map(|[drawn]| drawn)
    }

    /// Like [`Field::draw_of_all`], `N` times, so that the same one may come up twice.
    ///
    /// One pass because loads change meanwhile: totals of an earlier pass may no longer hold.
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
                if rng.f64() * total < weight {
                    *place = usable;
                }
            }
        }
        drawn
    }

    /// The usable candidate that carries the least for its weight.
    pub(crate) fn lightest(&self, moment: &mut Moment<'_>) -> Option<Usable> {
        self.least(moment, Usable::load)
    }

    /// The usable candidate with the smallest `cost`, in one pass.
    ///
    /// Of equal ones it is the one whose turn it is among all candidates; if that is none of them,
    /// they draw. Were it number `ticket % k` of `k` equal ones, requests that overlap in step with
    /// the tickets could pass over the same candidate for ever; were it the next one after the
    /// turn, those that stand after a busy one would get more.
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

    /// The usable candidates, in the order of the group.
    pub(crate) fn all_usable(&self) -> impl Iterator<Item = Usable> {
        (0..self.len()).filter_map(|index| self.usable(index))
    }
}

/// A candidate that may be chosen.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Usable {
    /// Its position in the group.
    pub(crate) index: usize,
    /// Its slot in the view.
    pub(crate) slot: ReplicaSlot,
    /// The weight that counts now, in thousandths; at least 1.
    pub(crate) weight: u64,
    /// The part of its weight that counts now, 1 to 1,000.
    pub(crate) ramp_permille: u16,
    /// Requests that this process has in flight there.
    pub(crate) in_flight: u32,
    /// Requests that others have in flight there, as far as they have told.
    pub(crate) elsewhere: u32,
    /// How much the request to be placed counts there: 1, or less among those that warm up.
    pub(crate) next: f64,
}

impl Usable {
    /// Requests in flight there, as far as known.
    #[inline]
    pub(crate) fn known(&self) -> f32 {
        self.in_flight as f32 + self.elsewhere as f32
    }

    /// What it would carry for its weight, were it to get this request.
    ///
    /// The request itself counts: of two idle candidates the one with more weight is lighter.
    /// Equal loads give equal numbers, since a division rounds the exact quotient.
    pub(crate) fn load(&self) -> f64 {
        (f64::from(self.in_flight) + self.next) / self.weight as f64
    }

    /// The attempt that goes there.
    pub(crate) fn because(self, reason: Reason) -> Attempt {
        Attempt { slot: self.slot, reason, prediction: None }
    }
}
