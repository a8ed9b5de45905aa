//! The verdict on a history.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::time::{Duration, Instant};

use super::explain::{Counterexample, explain};
use super::history::{Operation, Step};
use super::model::{Model, Steps};
use super::search::{Bounds, Found, search};

/// How long a check may take, and how much it may remember.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// For all keys together. Choose what a test run can spare; most histories take milliseconds,
    /// those with many unknown ends may take forever.
    pub time: Duration,
    /// Visited states to remember for a key: about 100 bytes each.
    pub memory: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { time: Duration::from_secs(60), memory: 4_000_000 }
    }
}

/// Whether a history is linearizable.
#[derive(Clone, Debug)]
#[must_use]
pub enum Verdict<K, M: Model> {
    /// There is an order that explains all answers.
    Linearizable,
    /// There is none.
    Violation(Box<Counterexample<K, M>>),
    /// Time or memory ran out: nothing is known. A test should count this as a failure.
    Unknown {
        /// The first key that was not decided.
        key: K,
    },
}

impl<K, M: Model> Verdict<K, M> {
    /// True when the history is certainly linearizable.
    #[must_use]
    pub fn is_linearizable(&self) -> bool {
        matches!(self, Self::Linearizable)
    }
}

/// Judges `history` by `model`, each key by itself.
pub fn check<K, M>(
    model: &M,
    history: &[Operation<K, M::Input, M::Output>],
    limits: Limits,
) -> Verdict<K, M>
where
    K: Clone + Debug + Ord,
    M: Model,
{
    let bounds = Bounds { until: Instant::now() + limits.time, memory: limits.memory };
    let mut keys: BTreeMap<&K, Steps<'_, M>> = BTreeMap::new();
    for (index, operation) in history.iter().enumerate() {
        if let Some(step) = Step::new(index, operation) {
            keys.entry(&operation.key).or_default().push(step);
        }
    }
    let mut undecided = None;
    for (key, steps) in keys {
        match search(model, model.initial(), &steps, 1, bounds) {
            Found::All(ways) if ways.is_empty() => {
                return Verdict::Violation(Box::new(explain(model, history, &steps, limits)));
            }
            Found::All(_) => {}
            // Another key may still show a violation, which says more.
            Found::GaveUp => undecided = undecided.or(Some(key)),
        }
    }
    undecided.map_or(Verdict::Linearizable, |key| Verdict::Unknown { key: key.clone() })
}

#[cfg(test)]
#[path = "check_test.rs"]
mod tests;
