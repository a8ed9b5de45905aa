//! Time of a decode step against the context that it reads.

use serde::{Deserialize, Serialize};

use super::regression::{Prior, Sums};

/// Terms of the time of a step: 1, and thousands of tokens of context at the replica.
const TERMS: usize = 2;

/// Part of a reply's weight that each later reply leaves: about the last two hundred count.
const KEEP_PER_REPLY: f64 = 0.995;

/// Replies that the prior counts as.
const PRIOR_REPLIES: f64 = 2.0;

/// Tokens of a reply from which on it counts in full.
const TOKENS_WHOLE: f32 = 200.0;

/// Share of a cache in which the prior's price is as certain as its base: contexts of usual load.
const USUAL_USE: f64 = 0.25;

/// Time of one decode step of a replica: a base, and a price for the KV of the contexts that run.
///
/// Each step reads the weights once, and the KV of every running request. So a further request
/// slows all others down by its context, however little of its prompt has to be read.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct DecodeModel {
    sums: Sums<TERMS>,
}

/// Parts of the time of a decode step, in milliseconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct StepTime {
    pub(super) base_ms: f32,
    /// Price of each thousand tokens of context.
    pub(super) per_thousand_ms: f32,
}

impl Default for DecodeModel {
    fn default() -> Self {
        Self { sums: Sums::EMPTY }
    }
}

impl DecodeModel {
    /// Learns from a stream of so many tokens in `span_ms` milliseconds, beside this many tokens of
    /// context at the replica.
    pub(super) fn learn(&mut self, tokens: f32, span_ms: f32, context_tokens: f32) {
        let context = f64::from(context_tokens.clamp(0.0, 1e9)) / 1_000.0;
        let weight = f64::from((tokens / TOKENS_WHOLE).min(1.0));
        self.sums.scale(KEEP_PER_REPLY);
        self.sums.add(&[1.0, context], f64::from(span_ms / tokens), weight);
    }

    /// Returns true if all that was learned is numbers.
    pub(super) fn is_sound(&self) -> bool {
        self.sums.is_sound()
    }

    /// Returns the time of a step. `usual_ms` is the expected time of a token before anything was
    /// learned. A cache is expected to take as long to be read as the weights: both are most of a
    /// GPU's memory.
    pub(super) fn step_time(&self, usual_ms: f32, kv_tokens: f32) -> StepTime {
        let cache = f64::from(kv_tokens) / 1_000.0;
        let usual_ms = f64::from(usual_ms);
        let price = if cache > 0.0 { usual_ms / cache } else { 0.0 };
        let usual_context = if cache > 0.0 { cache * USUAL_USE } else { 10.0 };
        let prior = Prior {
            mean: [usual_ms, price],
            precision: [PRIOR_REPLIES, PRIOR_REPLIES * usual_context * usual_context],
        };
        let [base, price] = self.sums.solve(&prior);
        StepTime { base_ms: base as f32, per_thousand_ms: price as f32 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base_and_price_are_told_apart_by_replies_beside_different_contexts() {
        let mut model = DecodeModel::default();
        let mut rng = fastrand::Rng::with_seed(5);
        for _ in 0..200 {
            let context = rng.f32() * 400_000.0;
            let step_ms = 8.0 + 0.064 * context / 1_000.0;
            model.learn(200.0, 200.0 * step_ms * (0.9 + 0.2 * rng.f32()), context);
        }
        let step = model.step_time(15.0, 400_000.0);
        assert!((step.base_ms - 8.0).abs() < 1.5, "{step:?}");
        assert!((step.per_thousand_ms - 0.064).abs() < 0.008, "{step:?}");
    }

    #[test]
    fn before_any_reply_a_cache_takes_as_long_to_be_read_as_the_weights() {
        let model = DecodeModel::default();
        let step = model.step_time(15.0, 300_000.0);
        assert_eq!(step, StepTime { base_ms: 15.0, per_thousand_ms: 0.05 });
        let unknown = StepTime { base_ms: 15.0, per_thousand_ms: 0.0 };
        assert_eq!(model.step_time(15.0, 0.0), unknown, "of a cache of unknown size");
    }

    #[test]
    fn a_replica_that_becomes_slower_is_noticed() {
        let mut model = DecodeModel::default();
        let mut learn = |step_ms: f32| {
            (0..400).for_each(|_| model.learn(100.0, 100.0 * step_ms, 0.0));
            model.step_time(15.0, 0.0).base_ms
        };
        assert!((learn(10.0) - 10.0).abs() < 0.5);
        assert!((learn(40.0) - 40.0).abs() < 5.0);
    }
}
