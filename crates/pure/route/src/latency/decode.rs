//! Time of a decode step against the context that it reads.

use serde::{Deserialize, Serialize};
use spillway_types::Speed;

use super::model::Beside;
use super::regression::{Prior, Sums};

/// Terms of the time of a step: 1, thousands of tokens of context at the replica, and prompt tokens
/// that it reads in the step.
const TERMS: usize = 3;

/// Part of a reply's weight that each later reply leaves: about the last thousand count. Hardware
/// hardly changes, and under steady load it takes many replies to separate the parts of a step.
const KEEP_PER_REPLY: f64 = 0.999;

/// Whole replies that the prior counts as.
const PRIOR_REPLIES: f64 = 0.05;

/// Whole replies after which half of the price that they show is believed.
const REPLIES_TRUSTED: f64 = 10.0;

/// Tokens of a reply from which on it counts in full.
const TOKENS_WHOLE: f32 = 200.0;

/// Thousands of tokens of context, and prompt tokens a step, by which the prior is as certain of their
/// times as of the base: a usual load.
const USUAL: [f64; TERMS] = [1.0, 10.0, 30.0];

/// Time of one decode step of a replica: a base, and a price for the KV of the contexts that run.
///
/// Each step reads the weights once, and the KV of every running request. So a further request
/// slows all others down by its context, however little of its prompt has to be read. Prompts that are
/// read in between take time as well, which is fitted beside the two: the time of reading that first
/// tokens show holds waits, and would leave the rest to the contexts.
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
    /// Learns from a stream of so many tokens in `span_ms` milliseconds, beside this work of the replica.
    pub(super) fn learn(&mut self, tokens: f32, span_ms: f32, beside: Beside) {
        let context = f64::from(beside.context_tokens.clamp(0.0, 1e9)) / 1_000.0;
        let read = f64::from((beside.read_tokens / tokens).clamp(0.0, 1e6));
        let weight = f64::from((tokens / TOKENS_WHOLE).min(1.0));
        self.sums.scale(KEEP_PER_REPLY);
        self.sums.add(&[1.0, context, read], f64::from(span_ms / tokens), weight);
    }

    /// Returns true if all that was learned is numbers.
    pub(super) fn is_sound(&self) -> bool {
        self.sums.is_sound()
    }

    /// Returns the time of a step. Before anything was learned, tokens of replies and prompts take the
    /// profile's times, and contexts none.
    pub(super) fn step_time(&self, profile: &Speed) -> StepTime {
        let prior = Prior {
            mean: [profile.decode_ms.into(), 0.0, profile.prefill_ms.into()],
            precision: USUAL.map(|usual| PRIOR_REPLIES * usual * usual),
        };
        let [base, price, _] = self.sums.solve(&prior);
        // The price that few replies show is mostly chance, and a low one costs less than a high
        // one.
        let replies = self.sums.products[0][0];
        let price = price * replies / (replies + REPLIES_TRUSTED);
        StepTime { base_ms: base as f32, per_thousand_ms: price as f32 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PROFILE: Speed = Speed { decode_ms: 15.0, prefill_ms: 0.1, ..Speed::UNKNOWN };

    /// A replica whose steps take 8 ms, and 0.064 ms for a thousand tokens of context.
    fn learn(model: &mut DecodeModel, rng: &mut fastrand::Rng, replies: u32, read: f32) {
        for _ in 0..replies {
            let context_tokens = rng.f32() * 400_000.0;
            let read_tokens = rng.f32() * 200.0 * read;
            let step_ms = 8.0 + 0.064 * context_tokens / 1_000.0 + 0.5 * read_tokens / 200.0;
            let span_ms = 200.0 * step_ms * (0.9 + 0.2 * rng.f32());
            model.learn(200.0, span_ms, Beside { context_tokens, read_tokens });
        }
    }

    #[test]
    fn base_price_and_reading_are_told_apart() {
        for read in [0.0, 100.0] {
            let mut model = DecodeModel::default();
            learn(&mut model, &mut fastrand::Rng::with_seed(5), 400, read);
            let step = model.step_time(&PROFILE);
            assert!((step.base_ms - 8.0).abs() < 1.5, "{read} {step:?}");
            assert!((step.per_thousand_ms - 0.064).abs() < 0.008, "{read} {step:?}");
        }
    }

    #[test]
    fn contexts_have_no_price_before_any_reply_and_less_of_it_after_few() {
        let mut model = DecodeModel::default();
        let before = StepTime { base_ms: 15.0, per_thousand_ms: 0.0 };
        assert_eq!(model.step_time(&PROFILE), before);
        let mut rng = fastrand::Rng::with_seed(7);
        learn(&mut model, &mut rng, 10, 0.0);
        let few = model.step_time(&PROFILE).per_thousand_ms;
        learn(&mut model, &mut rng, 400, 0.0);
        let many = model.step_time(&PROFILE).per_thousand_ms;
        assert!(few < 0.7 * many, "{few} {many}");
    }

    #[test]
    fn a_replica_that_becomes_slower_is_noticed() {
        let mut model = DecodeModel::default();
        let mut learn = |step_ms: f32| {
            (0..2_000).for_each(|_| model.learn(200.0, 200.0 * step_ms, Beside::default()));
            model.step_time(&PROFILE).base_ms
        };
        assert!((learn(10.0) - 10.0).abs() < 0.5);
        assert!((learn(40.0) - 40.0).abs() < 5.0);
    }
}
