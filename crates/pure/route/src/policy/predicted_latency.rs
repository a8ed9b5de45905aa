//! Predicted latency: the candidate that is predicted to take the least time.

use std::ops::ControlFlow;

use spillway_types::Inquiry;

use super::choose::Choose;
use super::sample::Sample;
use crate::field::Field;
use crate::predict::{Fit, Weigher};
use crate::{Attempt, Candidate, Moment, PredictedTuning, Reason, Snapshot, Tuning};

/// Policy that weighs the candidates at which the request fits. Of those that hold as much of the prompt
/// as the cheapest, it takes the one with the least contention; see [`Search`].
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
        // Candidates hold the prompt alike if they differ by a 20th of it at most.
        let slack = inquiry.prefix.as_slice().len() as u32 / 20;
        let alike = |blocks: u32| blocks.saturating_sub(slack);
        let mut search = Search::new(&weigher, field, alike(field.cached_blocks_max()));
        self.look(&mut search, inquiry.session);
        let Some(cheapest) = search.cheapest() else { return largest(&weigher, field) };
        if cheapest.fit == Fit::Full {
            return Some(cheapest.attempt);
        }
        let are_unknown =
            cheapest.blocks < search.alike_blocks || alike(cheapest.blocks) > search.alike_blocks;
        // Where nothing waits, contention adds nothing, and no other candidate has less.
        if are_unknown && cheapest.contended_ms > search.least_ms {
            // Others hold more of the prompt, or it is not known who holds most: those that hold as
            // much as the cheapest are looked at again.
            search = Search::among_alike(&search, cheapest, alike(cheapest.blocks));
            self.look(&mut search, inquiry.session);
        }
        let least_contended = search.least_contended.filter(|_| !are_unknown || search.only_alike);
        least_contended.or(Some(cheapest)).map(|found| found.attempt)
    }
}

impl PredictedLatency {
    /// Looks at the sample of a large group, and at all candidates if the group is small or the
    /// request fits at none of the sample.
    fn look(&self, search: &mut Search<'_>, session: Option<u64>) {
        if let Some(sample) = &self.sample {
            search.look_at_some(sample, session);
            if search.cheapest().is_some() {
                return;
            }
        }
        (0..search.field.len()).for_each(|index| search.look_at(index));
    }
}

/// Search for the best candidate.
///
/// The cheapest one determines how much of the prompt has to be cached. Of the candidates that have
/// as much cached, the one with the least contention gets the request. Requests that wait at a
/// replica hold up those that run there, so the wait counts once for each running request. This
/// spreads requests over replicas that hold the prompt alike. As a part of the cost itself, it
/// would spread prompts, and each cache would hold less of them.
struct Search<'s> {
    weigher: &'s Weigher,
    field: &'s Field<'s>,
    /// Cached blocks from which on a candidate counts as one of those that hold most of the prompt.
    alike_blocks: u32,
    /// True if the others are left out.
    only_alike: bool,
    /// Cheapest candidate at which the request fits.
    fitting: Option<FoundCandidate>,
    least_ms: f32,
    /// Candidate with the least contention of those that hold most.
    least_contended: Option<FoundCandidate>,
    least_contended_ms: f32,
    /// Cheapest candidate that looks full but has half of the prompt cached.
    full: Option<FoundCandidate>,
    least_full_ms: f32,
}

/// Candidate that may be chosen.
#[derive(Clone, Copy)]
struct FoundCandidate {
    attempt: Attempt,
    /// Blocks of the prompt that are cached there.
    blocks: u32,
    fit: Fit,
    contended_ms: f32,
}

impl<'s> Search<'s> {
    fn new(weigher: &'s Weigher, field: &'s Field<'s>, alike_blocks: u32) -> Self {
        Self {
            weigher,
            field,
            alike_blocks,
            only_alike: false,
            fitting: None,
            least_ms: f32::INFINITY,
            least_contended: None,
            least_contended_ms: f32::INFINITY,
            full: None,
            least_full_ms: f32::INFINITY,
        }
    }

    /// Returns a search among candidates with at least so many cached blocks, which begins with the
    /// cheapest of another search: most of the others are soon done with.
    fn among_alike(before: &Self, cheapest: FoundCandidate, alike_blocks: u32) -> Self {
        Self {
            only_alike: true,
            fitting: Some(cheapest),
            least_ms: before.least_ms,
            least_contended: Some(cheapest),
            least_contended_ms: cheapest.contended_ms,
            ..Self::new(before.weigher, before.field, alike_blocks)
        }
    }

    fn cheapest(&self) -> Option<FoundCandidate> {
        if self.least_full_ms < self.least_ms { self.full } else { self.fitting }
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
            && (!self.only_alike || self.is_alike(&snapshot))
            && weigher.may_cost_less(field.base_weight(index), &snapshot, self.bound_ms(&snapshot))
        {
            self.look_closely(index, &snapshot);
        }
    }

    #[inline]
    fn is_alike(&self, snapshot: &Snapshot) -> bool {
        snapshot.cached_blocks >= self.alike_blocks
    }

    /// Returns the cost above which the candidate is of no use. Contention only adds to a cost.
    #[inline]
    fn bound_ms(&self, snapshot: &Snapshot) -> f32 {
        let is_alike = self.is_alike(snapshot);
        if is_alike { self.least_ms.max(self.least_contended_ms) } else { self.least_ms }
    }

    /// Weighs a usable candidate. A function of its own, since those many that end before pay for
    /// what this one saves on the stack.
    #[inline(never)]
    fn look_closely(&mut self, index: usize, snapshot: &Snapshot) {
        let (weigher, field) = (self.weigher, self.field);
        let usable = field.as_usable(index, snapshot.in_flight, snapshot.elsewhere);
        // The terms that the outline leaves out can only add to the cost.
        let outline = weigher.outline(field, &usable, snapshot);
        let total_ms = outline.cost.total_ms();
        let contended_ms = total_ms + outline.held_up_ms;
        let is_better = total_ms <= self.least_ms
            || (contended_ms <= self.least_contended_ms && self.is_alike(snapshot));
        if !is_better {
            return;
        }
        let weight = weigher.complete(field, &usable, snapshot, &outline);
        let total_ms = weight.cost.total_ms();
        let prediction = weight.prediction;
        let attempt = Attempt { prediction: Some(prediction), ..usable.because(Reason::Soonest) };
        let contended_ms = weight.contended_ms();
        let found = FoundCandidate {
            attempt,
            blocks: snapshot.cached_blocks,
            fit: weight.fit,
            contended_ms,
        };
        let is_half_cached = 2 * prediction.cached_tokens >= prediction.prompt_tokens;
        match weight.fit {
            Fit::Fits => {
                if total_ms < self.least_ms {
                    (self.fitting, self.least_ms) = (Some(found), total_ms);
                }
                if self.is_alike(snapshot) && contended_ms < self.least_contended_ms {
                    (self.least_contended, self.least_contended_ms) = (Some(found), contended_ms);
                }
            }
            Fit::Full if is_half_cached && total_ms < self.least_full_ms => {
                (self.full, self.least_full_ms) = (Some(found), total_ms);
            }
            Fit::Full | Fit::TooLarge => {}
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
