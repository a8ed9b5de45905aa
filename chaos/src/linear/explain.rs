//! Makes a violation short enough to be understood.

use std::fmt::{self, Debug, Display, Formatter};
use std::time::Instant;

use super::check::Limits;
use super::history::{End, Operation, Step};
use super::model::{Model, Steps};
use super::search::{Bounds, Explanation, Found, search};

/// Starting states that are told; with more of them the story begins earlier.
const STARTS_MAX: usize = 16;

/// Operations up to which each read is left out on trial: their square is the number of searches.
const TRIALS_MAX: usize = 300;

/// Lines that are printed; the last ones matter most.
const LINES_MAX: usize = 60;

/// The shortest beginning of a key's history that no order explains.
///
/// What was settled before is left out and told as the states it may have led to, and reads that
/// are not needed for the contradiction are left out too.
#[derive(Clone, Debug)]
pub struct Counterexample<K, M: Model> {
    /// The key.
    pub key: K,
    /// Operations that were settled before `starts`.
    pub settled: usize,
    /// The states that the key may be in before `operations`.
    pub starts: Vec<M::State>,
    /// In the order of their calls. What returns only after the contradiction counts as unknown.
    pub operations: Vec<Operation<K, M::Input, M::Output>>,
    /// Which of `operations` has the answer that no order explains.
    pub culprit: usize,
}

/// Shortens `steps`, the history of one key that has no explanation.
pub(crate) fn explain<K: Clone, M: Model>(
    model: &M,
    history: &[Operation<K, M::Input, M::Output>],
    steps: &[Step<'_, M::Input, M::Output>],
    limits: Limits,
) -> Counterexample<K, M> {
    let bounds = Bounds { until: Instant::now() + limits.time, memory: limits.memory };
    let prefix = shortest_prefix(model, steps, bounds);
    let whole = Story {
        starts: vec![Explanation { state: model.initial(), unplaced: Vec::new() }],
        carried: Vec::new(),
        rest: prefix.clone(),
    };
    let mut story = settle(model, &prefix, bounds).unwrap_or(whole);
    let settled = prefix.len() - story.carried.len() - story.rest.len();
    story.leave_out_reads(model, bounds);
    story.told(history, settled)
}

/// The operations up to the first return with which there is no explanation.
fn shortest_prefix<'a, M: Model>(
    model: &M,
    steps: &[Step<'a, M::Input, M::Output>],
    bounds: Bounds,
) -> Steps<'a, M> {
    // Those that return at the same time are taken one by one too, or two would share the blame.
    let mut returns: Vec<(u64, usize)> = steps.iter().filter_map(end).collect();
    returns.sort_unstable();
    // Once there is no explanation, more operations do not bring one back.
    let first = returns.partition_point(|last| {
        let prefix = until::<M>(steps, *last);
        !has_no_way(model, &prefix, model.initial(), bounds)
    });
    match returns.get(first) {
        Some(last) => until::<M>(steps, *last),
        None => steps.to_vec(),
    }
}

/// When an operation returned, in an order without equals.
fn end<I, O>(step: &Step<'_, I, O>) -> Option<(u64, usize)> {
    step.return_ns.map(|at_ns| (at_ns, step.index))
}

/// What was known when the return `last` was the latest.
fn until<'a, M: Model>(
    steps: &[Step<'a, M::Input, M::Output>],
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
    steps: &[Step<'_, M::Input, M::Output>],
    state: M::State,
    bounds: Bounds,
) -> bool {
    matches!(search(model, state, steps, 1, bounds), Found::All(ways) if ways.is_empty())
}

/// A contradiction: from none of the starts the rest has an explanation.
struct Story<'a, M: Model> {
    /// `unplaced` are indices into `carried`.
    starts: Vec<Explanation<M::State>>,
    /// Called before the rest and without an end so far.
    carried: Steps<'a, M>,
    rest: Steps<'a, M>,
}

/// Leaves out what was over before the last moment at which nothing was under way that returned.
fn settle<'a, M: Model>(
    model: &M,
    prefix: &[Step<'a, M::Input, M::Output>],
    bounds: Bounds,
) -> Option<Story<'a, M>> {
    let is_quiet = |cut_ns: &u64| {
        let spans = |step: &Step<'_, _, _>| {
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
    // Carried ones stand behind: their numbers among all are their numbers here, moved.
    let ordered: Steps<'a, M> = settled.iter().chain(&carried).copied().collect();
    match search(model, model.initial(), &ordered, STARTS_MAX + 1, bounds) {
        Found::All(mut starts) if !starts.is_empty() && starts.len() <= STARTS_MAX => {
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
        if self.rest.len() > TRIALS_MAX {
            return;
        }
        for index in (0..self.rest.len()).rev() {
            if !model.only_reads(self.rest[index].input) {
                continue;
            }
            let read = self.rest.remove(index);
            if !self.is_contradiction(model, bounds) {
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
        let as_known = |step: &&Step<'_, _, _>| {
            let mut operation = history[step.index].clone();
            if step.return_ns.is_none() {
                operation.end = End::Unknown;
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
        // A violation has at least one operation, or there would be nothing to explain.
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
                End::Returned { at_ns, output } => {
                    let end_ms = ms(*at_ns);
                    write!(f, "  {call_ms:>12.3} to {end_ms:>12.3} ms  client {client}: ")?;
                    write!(f, "{input:?} -> {output:?}")?;
                }
                End::Unknown | End::Failed => {
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
