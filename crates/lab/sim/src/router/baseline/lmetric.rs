//! LMetric: prompt tokens to read, times requests.

use super::rule::Rule;
use super::view::{Choice, View};

/// Rule of LMetric (Zhang et al., "LMetric: Simple is Better - Multiplication May Be All You Need
/// for LLM Request Scheduling", OSDI 2026, arXiv 2603.15202): the instance with the least product
/// of the prompt tokens to be read there, with this request's, and of its batch, queued requests
/// included. No constants.
///
/// The request itself counts in the batch. Without it all idle instances would have the product 0,
/// and their caches would make no difference.
#[derive(Debug)]
pub(super) struct LMetric;

impl Rule for LMetric {
    fn choose(&mut self, view: &View<'_>, _rng: &mut fastrand::Rng) -> Choice {
        let cost = |replica| {
            let tokens = view.pending_tokens(replica) + view.uncached_tokens(replica);
            f64::from(tokens) * f64::from(view.load(replica) + 1)
        };
        view.cheapest(view.open(), cost).map_or(Choice::Stay, Choice::Replica)
    }
}
