//! Check of a whole history, key by key.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::time::{Duration, Instant};

use super::explain::{Counterexample, explain};
use super::history::{HistoryStep, Operation};
use super::model::{Model, Steps};
use super::search::{Bounds, SearchResult, search};

/// Limits of time and memory of a check.
#[derive(Clone, Copy, Debug)]
pub struct SearchLimits {
    /// Time for all keys together. Choose as much as a test run can spare: most histories take
    /// milliseconds, but many operations with an unknown end may take forever.
    pub time: Duration,
    /// Visited states to remember for one key, about 100 bytes each.
    pub memory: usize,
}

impl Default for SearchLimits {
    fn default() -> Self {
        Self { time: Duration::from_secs(60), memory: 4_000_000 }
    }
}

/// Result of a check.
#[derive(Clone, Debug)]
#[must_use]
pub enum SearchVerdict<K, M: Model> {
    /// Some order of the operations explains all answers.
    Linearizable,
    /// No order explains the answers of one key.
    Violation(Box<Counterexample<K, M>>),
    /// Time or memory ran out before a decision. A test should count this as a failure.
    Unknown {
        /// First key without a decision.
        key: K,
    },
}

impl<K, M: Model> SearchVerdict<K, M> {
    /// Returns true if the history is certainly linearizable.
    #[must_use]
    pub fn is_linearizable(&self) -> bool {
        matches!(self, Self::Linearizable)
    }
}

/// Checks `history` against `model`, each key by itself.
pub fn check<K, M>(
    model: &M,
    history: &[Operation<K, M::Input, M::Output>],
    limits: SearchLimits,
) -> SearchVerdict<K, M>
where
    K: Clone + Debug + Ord,
    M: Model,
{
    let bounds = Bounds { until: Instant::now() + limits.time, memory: limits.memory };
    let mut keys: BTreeMap<&K, Steps<'_, M>> = BTreeMap::new();
    for (index, operation) in history.iter().enumerate() {
        if let Some(step) = HistoryStep::new(index, operation) {
            keys.entry(&operation.key).or_default().push(step);
        }
    }
    let mut undecided = None;
    for (key, steps) in keys {
        match search(model, model.initial(), &steps, 1, bounds) {
            SearchResult::All(ways) if ways.is_empty() => {
                return SearchVerdict::Violation(Box::new(explain(model, history, &steps, limits)));
            }
            SearchResult::All(_) => {}
            // Go on: another key may still show a violation, which is stronger than a timeout.
            SearchResult::GaveUp => undecided = undecided.or(Some(key)),
        }
    }
    undecided.map_or(SearchVerdict::Linearizable, |key| SearchVerdict::Unknown { key: key.clone() })
}

#[cfg(test)]
#[path = "check_test.rs"]
mod tests;
