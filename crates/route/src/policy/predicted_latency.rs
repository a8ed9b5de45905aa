//! The candidate that is predicted to take the least time.

use spillway_types::Inquiry;

use super::Choose;
use crate::field::Field;
use crate::predict::{Fit, Weigher};
use crate::{Attempt, Candidate, Moment, PredictedTuning, Reason, Tuning};

/// Weighs every candidate and takes the cheapest at which the request fits.
#[derive(Debug)]
pub(super) struct PredictedLatency {
    tuning: PredictedTuning,
}

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
        let mut best: Option<Attempt> = None;
        let mut least = f32::INFINITY;
        for index in 0..field.len() {
            if field.was_tried(index) {
                continue;
            }
            let snapshot = field.snapshot(index);
            let Some(usable) = field.usable_by(index, &snapshot) else { continue };
            // What decides between equals only adds to it.
            if weigher.outline(field, &usable, &snapshot).cost.total_ms() > least {
                continue;
            }
            // Once more, but for a few of many.
            let weight = weigher.weigh(field, &usable, &snapshot);
            let total_ms = weight.cost.total_ms();
            if weight.fit == Fit::Fits && total_ms < least {
                let prediction = Some(weight.prediction);
                best = Some(Attempt { prediction, ..usable.because(Reason::Soonest) });
                least = total_ms;
            }
        }
        best.or_else(|| largest(&weigher, field))
    }
}

/// The candidate with the largest cache, if the request is too large even for that, and it may be
/// chosen. It goes there all the same: the engine says so better than the gateway, and waiting
/// helps nobody.
fn largest(weigher: &Weigher, field: &Field<'_>) -> Option<Attempt> {
    let mut largest: Option<(Attempt, f32)> = None;
    let mut tokens_max = 0.0_f32;
    for index in 0..field.len() {
        if field.was_tried(index) {
            continue;
        }
        let snapshot = field.snapshot(index);
        let kv_tokens = snapshot.speed.kv_tokens;
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
