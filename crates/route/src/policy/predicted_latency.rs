//! Predicted latency: the candidate that is predicted to take the least time.

use std::ops::ControlFlow;

use spillway_types::Inquiry;

use super::choose::Choose;
use super::sample::Sample;
use crate::field::Field;
use crate::predict::{Fit, Weigher};
use crate::{Attempt, Candidate, Moment, PredictedTuning, Reason, Snapshot, Tuning};

/// Policy that weighs the candidates and takes the cheapest at which the request fits.
///
/// A request of which the cheapest replica has half of the prompt cached goes there although it
/// looks full: elsewhere the prompt would be read again and cached twice, and near saturation that
/// leaves less room for all.
///
/// Of a large group it weighs the candidates that have most of the prompt cached and a part of the
/// others. The cheapest of a hundred is hardly dearer than the cheapest of thousands, and the other
/// candidates cost the decision nothing. The prompt selects that part, so that nodes with equal
/// knowledge look at the same candidates. If the request fits at none of these, all are weighed.
#[derive(Debug)]
pub(super) struct PredictedLatency {
    tuning: PredictedTuning,
    /// Sample of a group that is too large to weigh all of its candidates.
    sample: Option<Sample>,
}

/// Largest group in which all candidates are weighed.
pub(super) const ALL_MAX: usize = 256;
/// Candidates of a larger group that are weighed for having most of the prompt cached, and for
/// having more than half as much.
pub(super) const CACHED_MAX: usize = 64;

impl PredictedLatency {
    pub(super) fn prepare(candidates: &[Candidate], tuning: &Tuning) -> Self {
        let sample = (candidates.len() > ALL_MAX).then(|| Sample::of(candidates));
        Self { tuning: tuning.predicted, sample }
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
        if let Some(sample) = &self.sample {
            search.look_at_some(sample, inquiry.session);
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

    fn look_at_some(&mut self, sample: &Sample, session: Option<u64>) {
        let (field, key) = (self.field, self.weigher.key());
        // The caches first: most of the others cost more, and are soon done with.
        let most = field.cached_blocks_max();
        for blocks in [most.max(1)..=most, most / 2 + 1..=most.saturating_sub(1)] {
            let mut left = CACHED_MAX;
            if !blocks.is_empty() {
                sample.visit_cached(field, blocks, |index| self.look_while(index, &mut left));
            }
        }
        let session = session.and_then(|identity| sample.of_identity(field, identity));
        session.into_iter().chain(sample.draw(key)).for_each(|index| self.look_at(index));
    }

    /// Looks at a candidate, and breaks if it is the last one that is to be looked at.
    fn look_while(&mut self, index: usize, left: &mut usize) -> ControlFlow<()> {
        self.look_at(index);
        *left -= 1;
        if *left == 0 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    }

    #[inline]
    fn look_at(&mut self, index: usize) {
        let (weigher, field) = (self.weigher, self.field);
        if field.was_tried(index) {
            return;
        }
        let snapshot = field.snapshot(index);
        // Cheap checks first: most candidates of a large group end here.
        if field.is_usable_by(index, &snapshot)
            && weigher.may_cost_less(field.base_weight(index), &snapshot, self.least)
        {
            self.look_closely(index, &snapshot);
        }
    }

    /// Weighs a usable candidate. A function of its own, since those many that end before pay for
    /// what this one saves on the stack.
    #[inline(never)]
    fn look_closely(&mut self, index: usize, snapshot: &Snapshot) {
        let (weigher, field) = (self.weigher, self.field);
        let usable = field.as_usable(index, snapshot.in_flight, snapshot.elsewhere);
        // The terms that the outline leaves out can only add to the cost.
        let outline = weigher.outline(field, &usable, snapshot);
        if outline.cost.total_ms() > self.least {
            return;
        }
        let weight = weigher.complete(field, &usable, snapshot, &outline);
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
pub(super) fn largest(weigher: &Weigher, field: &Field<'_>) -> Option<Attempt> {
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
