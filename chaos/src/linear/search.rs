//! Search for an order that explains all answers of one key.

use std::cmp::Reverse;
use std::collections::HashSet;
use std::time::Instant;

use super::bits::{Bits, Window};
use super::history::HistoryStep;
use super::model::Model;

/// Attempts between two checks of the clock.
const LOOK_EVERY: u32 = 256;

/// Limits at which a search gives up.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bounds {
    pub(crate) until: Instant,
    /// Most visited states to remember.
    pub(crate) memory: usize,
}

/// Order that explains all operations that returned.
#[derive(Clone, Debug)]
pub(crate) struct SearchExplanation<S> {
    /// State at the end.
    pub(crate) state: S,
    /// Indices of the operations with an unknown end that did not take effect.
    pub(crate) unplaced: Vec<usize>,
}

/// Result of a search.
#[derive(Clone, Debug)]
pub(crate) enum SearchResult<S> {
    /// As many explanations as were asked for, or all there are; empty if there is none.
    All(Vec<SearchExplanation<S>>),
    /// The limit of time or memory was reached.
    GaveUp,
}

/// Searches up to `ways` different explanations of `steps` that begin in `state`.
pub(crate) fn search<M: Model>(
    model: &M,
    state: M::State,
    steps: &[HistoryStep<'_, M::Input, M::Output>],
    ways: usize,
    bounds: Bounds,
) -> SearchResult<M::State> {
    let mut search = Search {
        model,
        steps,
        events: Events::new(steps),
        ordered: Bits::new(steps.len()),
        returns_left: steps.iter().filter(|step| step.return_ns.is_some()).count(),
        state,
        path: Vec::new(),
        seen: HashSet::new(),
    };
    search.run(ways, bounds)
}

struct Search<'a, M: Model> {
    model: &'a M,
    steps: &'a [HistoryStep<'a, M::Input, M::Output>],
    events: Events,
    ordered: Bits,
    /// Number of operations that returned and are not in the order yet.
    returns_left: usize,
    state: M::State,
    /// Order so far.
    path: Vec<SearchChoice<M::State>>,
    /// Visited combinations of operations in the order (whichever comes first) and the state after them.
    seen: HashSet<(Window, M::State)>,
}

/// Operation of the order, with its alternatives.
struct SearchChoice<S> {
    step: usize,
    /// State before the operation.
    before: S,
    /// Alternatives, in reverse order of trial.
    others: Vec<usize>,
}

impl<M: Model> Search<'_, M> {
    fn run(&mut self, ways: usize, bounds: Bounds) -> SearchResult<M::State> {
        let mut found = Vec::new();
        if self.returns_left == 0 {
            found.push(self.explanation());
        }
        let mut candidates = self.candidates();
        let mut attempts = 0;
        while found.len() < ways {
            attempts += 1;
            let is_late = attempts % LOOK_EVERY == 0 && Instant::now() >= bounds.until;
            if is_late || self.seen.len() > bounds.memory {
                return SearchResult::GaveUp;
            }
            let Some(step) = candidates.pop() else {
                match self.take_back() {
                    Some(others) => candidates = others,
                    None => break,
                }
                continue;
            };
            if self.append(step, &mut candidates) {
                if self.returns_left == 0 {
                    found.push(self.explanation());
                }
                candidates = self.candidates();
            }
        }
        SearchResult::All(found)
    }

    /// Lists the operations that may come next: those called before any other operation outside the order has
    /// returned. The most promising one is last.
    ///
    /// An answer that fits and changes nothing is the only candidate: taking it now makes nothing
    /// harder to explain.
    fn candidates(&self) -> Vec<usize> {
        let mut candidates = Vec::new();
        let mut event = self.events.first();
        while let SearchEvent::Call(index) = self.events.at(event) {
            let step = &self.steps[index];
            let after = self.model.step(&self.state, step.input, step.output);
            match after {
                Some(after) if after != self.state => candidates.push(index),
                Some(_) if step.return_ns.is_some() => return vec![index],
                // An operation with an unknown end that changes nothing need not be ordered at all.
                Some(_) | None => {}
            }
            event = self.events.after(event);
        }
        candidates.sort_unstable_by_key(|index| {
            let step = &self.steps[*index];
            let hint = step.output.and_then(|output| self.model.order_hint(output));
            // Last in the list, so tried first: the earliest position and the earliest return. First
            // in the list, so tried last: operations with an unknown end, which need not be ordered.
            Reverse((step.return_ns.is_none(), hint.unwrap_or(u64::MAX), step.return_ns, *index))
        });
        candidates
    }

    /// Appends `index` to the order. Returns false if its answer does not fit, or if the same operations led
    /// to the same state before.
    fn append(&mut self, index: usize, others: &mut Vec<usize>) -> bool {
        let step = &self.steps[index];
        let Some(after) = self.model.step(&self.state, step.input, step.output) else {
            return false;
        };
        self.ordered.insert(index);
        if !self.seen.insert((self.ordered.window(), after.clone())) {
            self.ordered.remove(index);
            return false;
        }
        let before = std::mem::replace(&mut self.state, after);
        self.path.push(SearchChoice { step: index, before, others: std::mem::take(others) });
        self.returns_left -= usize::from(step.return_ns.is_some());
        self.events.lift(index);
        true
    }

    /// Undoes the last step and returns its alternatives; `None` if everything was tried.
    fn take_back(&mut self) -> Option<Vec<usize>> {
        let SearchChoice { step, before, others } = self.path.pop()?;
        self.state = before;
        self.ordered.remove(step);
        self.returns_left += usize::from(self.steps[step].return_ns.is_some());
        self.events.put_back(step);
        Some(others)
    }

    fn explanation(&self) -> SearchExplanation<M::State> {
        let unplaced =
            (0..self.steps.len()).filter(|index| !self.ordered.contains(*index)).collect();
        SearchExplanation { state: self.state.clone(), unplaced }
    }
}

/// Event at a point in time.
#[derive(Clone, Copy, Debug)]
enum SearchEvent {
    Call(usize),
    Return,
    End,
}

/// Calls and returns in order of time, as a linked list. Operations are taken out, and put back in
/// reverse order, in constant time.
#[derive(Debug)]
struct Events {
    events: Vec<SearchEvent>,
    next: Vec<usize>,
    previous: Vec<usize>,
    calls: Vec<usize>,
    returns: Vec<Option<usize>>,
}

/// Index of the list's head, before the first event.
const HEAD: usize = 0;

impl Events {
    fn new<I, O>(steps: &[HistoryStep<'_, I, O>]) -> Self {
        let calls = steps.iter().enumerate().map(|(index, step)| (step.call_ns, false, index));
        let returns = steps
            .iter()
            .enumerate()
            .filter_map(|(index, step)| step.return_ns.map(|at_ns| (at_ns, true, index)));
        let mut order: Vec<(u64, bool, usize)> = calls.chain(returns).collect();
        // Calls come first at the same moment: such operations count as concurrent.
        order.sort_unstable();
        let mut events = vec![SearchEvent::End];
        let mut list = Self {
            events: Vec::new(),
            next: Vec::new(),
            previous: Vec::new(),
            calls: vec![0; steps.len()],
            returns: vec![None; steps.len()],
        };
        for (_, is_return, index) in order {
            if is_return {
                list.returns[index] = Some(events.len());
                events.push(SearchEvent::Return);
            } else {
                list.calls[index] = events.len();
                events.push(SearchEvent::Call(index));
            }
        }
        events.push(SearchEvent::End);
        list.next = (1..=events.len()).collect();
        list.previous = (0..events.len()).map(|position| position.saturating_sub(1)).collect();
        list.events = events;
        list
    }

    fn first(&self) -> usize {
        self.next[HEAD]
    }

    fn after(&self, position: usize) -> usize {
        self.next[position]
    }

    fn at(&self, position: usize) -> SearchEvent {
        self.events[position]
    }

    fn lift(&mut self, index: usize) {
        self.unlink(self.calls[index]);
        if let Some(position) = self.returns[index] {
            self.unlink(position);
        }
    }

    fn put_back(&mut self, index: usize) {
        if let Some(position) = self.returns[index] {
            self.link(position);
        }
        self.link(self.calls[index]);
    }

    fn unlink(&mut self, position: usize) {
        let (previous, next) = (self.previous[position], self.next[position]);
        self.next[previous] = next;
        self.previous[next] = previous;
    }

    fn link(&mut self, position: usize) {
        self.next[self.previous[position]] = position;
        self.previous[self.next[position]] = position;
    }
}
