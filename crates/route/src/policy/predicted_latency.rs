//! Predicted latency: the candidate that is predicted to take the least time.

use spillway_types::Inquiry;

use super::choose::Choose;
use crate::field::Field;
use crate::predict::{Fit, Weigher};
use crate::rendezvous::mix;
use crate::{Attempt, Candidate, Moment, PredictedTuning, Reason, Tuning};

/// Policy that weighs the candidates and takes the cheapest at which the request fits.
///
/// A request of which the cheapest replica has half of the prompt cached goes there although it
/// looks full: elsewhere the prompt would be read again and cached twice, and near saturation that
/// leaves less room for all.
///
/// Of a large group it weighs the candidates that have most of the prompt cached and a part of the
/// others. The cheapest of a hundred is hardly dearer than the cheapest of thousands, and each
/// other candidate costs the decision a few nanoseconds only. The prompt selects that part, so that nodes with
/// equal knowledge look at the same candidates. If the request fits at none of these, all are
/// weighed.
#[derive(Debug)]
pub(super) struct PredictedLatency {
    tuning: PredictedTuning,
}

/// Largest group in which all candidates are weighed.
const ALL_MAX: usize = 256;
/// Candidates of a larger group that are weighed for their cached blocks, and about as many others.
const CACHED_MAX: usize = 64;
const OTHERS: u64 = 64;

impl PredictedLatency {
    pub(super) fn prepare(_candidates: &[Candidate], tuning: &Tuning) -> Self {
        Self { tuning: tuning.predicted }
    }
}

impl Choose for PredictedLatency {
    fn choose(
        &self,
        inquiry: &Inquiry,
        field: &Field<'_>,
        moment: &mut Moment<'_>,
    ) -> Option<Attempt> {
        let weigher = Weigher::new(&self.tuning, inquiry, field, moment.rng);
        let mut search = Search::new(&weigher, field);
        if field.len() > ALL_MAX {
            search.look_at_some(inquiry.session);
        }
        // The group is small, or the request fits at none of the selected candidates.
        if search.best().is_none() {
            (0..field.len()).for_each(|index| search.look_at(index));
        }
        search.best().or_else(|| largest(&weigher, field))
    }
}

/// Search for the cheapest candidate.
struct Search<'s> {
    weigher: &'s Weigher,
    field: &'s Field<'s>,
    /// Cheapest candidate at which the request fits, and its cost.
    fitting: Option<Attempt>,
    least: f32,
    /// Cheapest candidate that looks full but has half of the prompt cached, and its cost.
    cached: Option<Attempt>,
    least_cached: f32,
}

impl<'s> Search<'s> {
    fn new(weigher: &'s Weigher, field: &'s Field<'s>) -> Self {
        let (least, least_cached) = (f32::INFINITY, f32::INFINITY);
        Self { weigher, field, fitting: None, least, cached: None, least_cached }
    }

    fn best(&self) -> Option<Attempt> {
        if self.least_cached < self.least { self.cached } else { self.fitting }
    }

    fn look_at_some(&mut self, session: Option<u64>) {
        let (field, key) = (self.field, self.weigher.key());
        let most = field.cached_blocks_max();
        // A hash is below this for about [`OTHERS`] candidates of the group.
        let bound = u64::MAX / field.len() as u64 * OTHERS;
        let (mut deepest, mut deep) = (0, 0);
        for index in 0..field.len() {
            let identity = field.identity(index);
            let is_drawn = mix(key, identity) < bound || session == Some(identity);
            // The deepest caches, and those with more than half as much, up to a number of each.
            let is_cached = most > 0 && {
                let blocks = field.cached_blocks_at(index);
                let is_deepest = blocks >= most;
                let is_deep = 2 * blocks > most;
                deepest += usize::from(is_deepest);
                deep += usize::from(is_deep);
                (is_deepest && deepest <= CACHED_MAX) || (is_deep && deep <= CACHED_MAX)
            };
            if is_drawn || is_cached {
                self.look_at(index);
            }
        }
    }

    #[inline]
    fn look_at(&mut self, index: usize) {
        let (weigher, field) = (self.weigher, self.field);
        if field.was_tried(index) {
            return;
        }
        let snapshot = field.snapshot(index);
        let Some(usable) = field.usable_by(index, &snapshot) else { return };
        // Cheap checks first: most candidates of a large group end here.
        if !weigher.may_cost_less(field, &usable, &snapshot, self.least) {
            return;
        }
        // The terms that the outline leaves out can only add to the cost.
        if weigher.outline(field, &usable, &snapshot).cost.total_ms() > self.least {
            return;
        }
        // Only a few of many candidates come this far, so they are weighed again in full.
        let weight = weigher.weigh(field, &usable, &snapshot);
        let total_ms = weight.cost.total_ms();
        let prediction = weight.prediction;
        let attempt = Attempt { prediction: Some(prediction), ..usable.because(Reason::Soonest) };
        let is_half_cached = 2 * prediction.cached_tokens >= prediction.prompt_tokens;
        match weight.fit {
            Fit::Fits if total_ms < self.least => {
                (self.fitting, self.least) = (Some(attempt), total_ms);
            }
            Fit::Full if is_half_cached && total_ms < self.least_cached => {
                (self.cached, self.least_cached) = (Some(attempt), total_ms);
            }
            Fit::Fits | Fit::Full | Fit::TooLarge => {}
        }
    }
}

/// Returns the candidate with the largest cache, if the request is too large even for that one and
/// it is usable. The request goes there all the same: the engine explains the refusal better than
/// the gateway, and waiting would not help.
fn largest(weigher: &Weigher, field: &Field<'_>) -> Option<Attempt> {
    let mut largest: Option<(Attempt, f32)> = None;
    let mut tokens_max = 0.0_f32;
    for index in 0..field.len() {
        if field.was_tried(index) {
            continue;
        }
        let snapshot = field.snapshot(index);
        let kv_tokens = snapshot.speed.kv_tokens;
        // A cache of unknown size may be the largest.
        tokens_max = tokens_max.max(if kv_tokens > 0.0 { kv_tokens } else { f32::INFINITY });
        let Some(usable) = field.usable_by(index, &snapshot) else { continue };
        let weight = weigher.weigh(field, &usable, &snapshot);
        let is_larger = largest.is_none_or(|(_, most)| weight.kv_tokens > most);
        if weight.fit == Fit::TooLarge && is_larger {
            let prediction = Some(weight.prediction);
            let attempt = Attempt { prediction, ..usable.because(Reason::Soonest) };
            largest = Some((attempt, weight.kv_tokens));
        }
    }
    largest.filter(|&(_, most)| most >= tokens_max).map(|(attempt, _)| attempt)
}
