//! Reduction of a violation to a short counter-example.

use std::fmt::{self, Debug, Display, Formatter};
use std::time::Instant;

use super::check::SearchLimits;
use super::history::{HistoryStep, Operation, OperationEnd};
use super::model::{Model, Steps};
use super::search::{Bounds, SearchExplanation, SearchResult, search};

/// Most starting states to list; with more of them the counter-example begins earlier.
const STARTS_MAX: usize = 16;

/// Most operations for which leaving out reads is tried: the work grows with their square.
const TRIALS_MAX: usize = 300;

/// Most lines to print. The last ones matter most.
const LINES_MAX: usize = 60;

/// Shortest prefix of a key's history that no order explains.
///
/// Operations before a quiet moment are replaced by the states that they may have led to, and reads
/// that the contradiction does not need are left out.
#[derive(Clone, Debug)]
pub struct Counterexample<K, M: Model> {
    /// Key of the history.
    pub key: K,
    /// Number of operations that ended before `starts`.
    pub settled: usize,
    /// States that the key may be in before `operations`.
    pub starts: Vec<M::State>,
    /// Operations in the order of their calls. One that returns after the contradiction counts as
    /// unknown.
    pub operations: Vec<Operation<K, M::Input, M::Output>>,
    /// Index into `operations` of the answer that no order explains.
    pub culprit: usize,
}

/// Reduces `steps`, the history of one key that no order explains.
pub(crate) fn explain<K: Clone, M: Model>(
    model: &M,
    history: &[Operation<K, M::Input, M::Output>],
    steps: &[HistoryStep<'_, M::Input, M::Output>],
    limits: SearchLimits,
) -> Counterexample<K, M> {
    let bounds = Bounds { until: Instant::now() + limits.time, memory: limits.memory };
    let prefix = shortest_prefix(model, steps, bounds);
    let whole = Story {
        starts: vec![SearchExplanation { state: model.initial(), unplaced: Vec::new() }],
        carried: Vec::new(),
        rest: prefix.clone(),
    };
    let mut story = settle(model, &prefix, bounds).unwrap_or(whole);
    let settled = prefix.len() - story.carried.len() - story.rest.len();
    story.leave_out_reads(model, bounds);
    story.told(history, settled)
}

/// Returns the operations up to the first return that makes the history unexplainable.
fn shortest_prefix<'a, M: Model>(
    model: &M,
    steps: &[HistoryStep<'a, M::Input, M::Output>],
    bounds: Bounds,
) -> Steps<'a, M> {
    // Returns at the same moment are tried one by one too, so that one operation alone is the
    // culprit.
    let mut returns: Vec<(u64, usize)> = steps.iter().filter_map(end).collect();
    returns.sort_unstable();
    // If no order explains a prefix, none explains a longer one: a binary search is enough.
    let first = returns.partition_point(|last| {
        let prefix = until::<M>(steps, *last);
        !has_no_way(model, &prefix, model.initial(), bounds)
    });
    match returns.get(first) {
        Some(last) => until::<M>(steps, *last),
        None => steps.to_vec(),
    }
}

/// Returns the moment of the return in nanoseconds, made unique by the index; `None` for an unknown
/// end.
fn end<I, O>(step: &HistoryStep<'_, I, O>) -> Option<(u64, usize)> {
    step.return_ns.map(|at_ns| (at_ns, step.index))
}

/// Returns the history as it was known at the return `last`: later returns count as unknown.
fn until<'a, M: Model>(
    steps: &[HistoryStep<'a, M::Input, M::Output>],
    last: (u64, usize),
) -> Steps<'a, M> {
    let known = steps.iter().filter(|step| step.call_ns <= last.0);
    known
        .map(|step| match end(step) {
            Some(returned) if returned <= last => *step,
            _ => step.pending(),
        })
        .collect()
}

fn has_no_way<M: Model>(
    model: &M,
    steps: &[HistoryStep<'_, M::Input, M::Output>],
    state: M::State,
    bounds: Bounds,
) -> bool {
    matches!(search(model, state, steps, 1, bounds), SearchResult::All(ways) if ways.is_empty())
}

/// Contradiction: `rest` has no explanation from any of the starts.
struct Story<'a, M: Model> {
    /// Possible states at the quiet moment. `unplaced` are indices into `carried`.
    starts: Vec<SearchExplanation<M::State>>,
    /// Operations called before `rest` with an unknown end.
    carried: Steps<'a, M>,
    rest: Steps<'a, M>,
}

/// Splits a history at its last quiet moment, where no operation was under way that returned later.
/// Returns `None` without such a moment, or if it has too many possible states.
fn settle<'a, M: Model>(
    model: &M,
    prefix: &[HistoryStep<'a, M::Input, M::Output>],
    bounds: Bounds,
) -> Option<Story<'a, M>> {
    let is_quiet = |cut_ns: &u64| {
        let spans = |step: &HistoryStep<'_, _, _>| {
            step.call_ns <= *cut_ns && step.return_ns.is_some_and(|at_ns| at_ns > *cut_ns)
        };
        !prefix.iter().any(spans)
    };
    let last = prefix.iter().filter_map(|step| step.return_ns).max()?;
    let mut returns: Vec<u64> =
        prefix.iter().filter_map(|step| step.return_ns).filter(|at_ns| *at_ns < last).collect();
    returns.sort_unstable();
    let cut_ns = returns.into_iter().rev().find(is_quiet)?;
    let (before, rest): (Steps<'a, M>, Steps<'a, M>) =
        prefix.iter().partition(|step| step.call_ns <= cut_ns);
    let (settled, carried): (Steps<'a, M>, Steps<'a, M>) =
        before.iter().partition(|step| step.return_ns.is_some());
    // Carried operations are searched after the settled ones, so their numbers are moved back.
    let ordered: Steps<'a, M> = settled.iter().chain(&carried).copied().collect();
    match search(model, model.initial(), &ordered, STARTS_MAX + 1, bounds) {
        SearchResult::All(mut starts) if !starts.is_empty() && starts.len() <= STARTS_MAX => {
            for start in &mut starts {
                start.unplaced.iter_mut().for_each(|index| *index -= settled.len());
            }
            Some(Story { starts, carried, rest })
        }
        _ => None,
    }
}

impl<M: Model> Story<'_, M> {
    fn is_contradiction(&self, model: &M, bounds: Bounds) -> bool {
        self.starts.iter().all(|start| {
            let carried = start.unplaced.iter().map(|index| self.carried[*index]);
            let steps: Steps<'_, M> = carried.chain(self.rest.iter().copied()).collect();
            has_no_way(model, &steps, start.state.clone(), bounds)
        })
    }

    fn leave_out_reads(&mut self, model: &M, bounds: Bounds) {
        // Each trial is a search of its own, so a long history is shown unchanged.
        if self.rest.len() > TRIALS_MAX {
            return;
        }
        // From the end, so that a removal does not move those still to be tried.
        for index in (0..self.rest.len()).rev() {
            if !model.only_reads(self.rest[index].input) {
                continue;
            }
            let read = self.rest.remove(index);
            if !self.is_contradiction(model, bounds) {
                // The contradiction needs this read.
                self.rest.insert(index, read);
            }
        }
    }

    fn told<K: Clone>(
        self,
        history: &[Operation<K, M::Input, M::Output>],
        settled: usize,
    ) -> Counterexample<K, M> {
        let mut steps: Vec<_> = self.carried.iter().chain(&self.rest).collect();
        steps.sort_by_key(|step| step.call_ns);
        let last = (0..steps.len()).max_by_key(|position| end(steps[*position]));
        let culprit = last.unwrap_or_default();
        let as_known = |step: &&HistoryStep<'_, _, _>| {
            let mut operation = history[step.index].clone();
            if step.return_ns.is_none() {
                operation.end = OperationEnd::Unknown;
            }
            operation
        };
        let operations: Vec<_> = steps.iter().map(as_known).collect();
        let mut starts: Vec<M::State> = Vec::new();
        for start in self.starts {
            if !starts.contains(&start.state) {
                starts.push(start.state);
            }
        }
        // A violation has at least one operation, so the index is valid.
        let key = operations[culprit].key.clone();
        Counterexample { key, settled, starts, operations, culprit }
    }
}

impl<K: Debug, M: Model> Display for Counterexample<K, M> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        writeln!(f, "key {:?}: no order of these operations explains their answers", self.key)?;
        let starts: Vec<String> = self.starts.iter().map(|state| format!("{state:?}")).collect();
        let starts = starts.join(" or ");
        writeln!(f, "  after {} operations before them: {starts}", self.settled)?;
        let hidden = self.operations.len().saturating_sub(LINES_MAX);
        if hidden > 0 {
            writeln!(f, "  ({hidden} earlier ones are not shown)")?;
        }
        for (index, operation) in self.operations.iter().enumerate().skip(hidden) {
            let ms = |ns: u64| ns as f64 / 1e6;
            let Operation { client, input, call_ns, end, .. } = operation;
            let call_ms = ms(*call_ns);
            match end {
                OperationEnd::Returned { at_ns, output } => {
                    let end_ms = ms(*at_ns);
                    write!(f, "  {call_ms:>12.3} to {end_ms:>12.3} ms  client {client}: ")?;
                    write!(f, "{input:?} -> {output:?}")?;
                }
                OperationEnd::Unknown | OperationEnd::Failed => {
                    write!(f, "  {call_ms:>12.3} to            ? ms  client {client}: ")?;
                    write!(f, "{input:?} -> no answer so far")?;
                }
            }
            let mark = if index == self.culprit { "   <-- this answer" } else { "" };
            writeln!(f, "{mark}")?;
        }
        Ok(())
    }
}
