//! The search for an order that explains all answers of one key.

use std::cmp::Reverse;
use std::collections::HashSet;
use std::time::Instant;

use super::bits::{Bits, Window};
use super::history::Step;
use super::model::Model;

/// Attempts between two looks at the clock.
const LOOK_EVERY: u32 = 256;

/// Where a search ends without a result.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bounds {
    pub(crate) until: Instant,
    /// Visited states that are remembered.
    pub(crate) memory: usize,
}

/// A way to place all operations that returned.
#[derive(Clone, Debug)]
pub(crate) struct Explanation<S> {
    /// The state at the end.
    pub(crate) state: S,
    /// Which of the operations that never returned did not take effect in it.
    pub(crate) unplaced: Vec<usize>,
}

/// What a search found.
#[derive(Clone, Debug)]
pub(crate) enum Found<S> {
    /// As many ways as were asked for, or all there are; none if there is no way.
    All(Vec<Explanation<S>>),
    /// Time or memory ran out.
    GaveUp,
}

/// Looks for up to `ways` different explanations of `steps` that begin in `state`.
pub(crate) fn search<M: Model>(
    model: &M,
    state: M::State,
    steps: &[Step<'_, M::Input, M::Output>],
    ways: usize,
    bounds: Bounds,
) -> Found<M::State> {
    let mut search = Search {
        model,
        steps,
        events: Events::new(steps),
        placed: Bits::new(steps.len()),
        returns_left: steps.iter().filter(|step| step.return_ns.is_some()).count(),
        state,
        path: Vec::new(),
        seen: HashSet::new(),
    };
    search.run(ways, bounds)
}

struct Search<'a, M: Model> {
    model: &'a M,
    steps: &'a [Step<'a, M::Input, M::Output>],
    events: Events,
    placed: Bits,
    /// Operations that returned and are not placed.
    returns_left: usize,
    state: M::State,
    /// The operations in the order tried now.
    path: Vec<Choice<M::State>>,
    /// What was tried: the operations placed, in whatever order, and the state they led to.
    seen: HashSet<(Window, M::State)>,
}

/// An operation that was placed, and what else there was to place.
struct Choice<S> {
    step: usize,
    /// The state before it.
    before: S,
    /// To be tried when this one leads nowhere, the next one last.
    others: Vec<usize>,
}

impl<M: Model> Search<'_, M> {
    fn run(&mut self, ways: usize, bounds: Bounds) -> Found<M::State> {
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
                return Found::GaveUp;
            }
            let Some(step) = candidates.pop() else {
                match self.take_back() {
                    Some(others) => candidates = others,
                    None => break,
                }
                continue;
            };
            if self.place(step, &mut candidates) {
                if self.returns_left == 0 {
                    found.push(self.explanation());
                }
                candidates = self.candidates();
            }
        }
        Found::All(found)
    }

    /// What may come next: called before anything that is not placed has returned. The most
    /// promising is last. An answer that fits without changing anything is the only candidate:
    /// nothing gets harder to explain by placing it now.
    fn candidates(&self) -> Vec<usize> {
        let mut candidates = Vec::new();
        let mut event = self.events.first();
        while let Event::Call(index) = self.events.at(event) {
            let step = &self.steps[index];
            let after = self.model.step(&self.state, step.input, step.output);
            match after {
                Some(after) if after != self.state => candidates.push(index),
                Some(_) if step.return_ns.is_some() => return vec![index],
                // An unknown end that changes nothing might as well never come.
                Some(_) | None => {}
            }
            event = self.events.after(event);
        }
        candidates.sort_unstable_by_key(|index| {
            let step = &self.steps[*index];
            let hint = step.output.and_then(|output| self.model.order_hint(output));
            // What has to be placed soonest first, and what need not be placed at all last.
            Reverse((step.return_ns.is_none(), hint.unwrap_or(u64::MAX), step.return_ns, *index))
        });
        candidates
    }

    /// Places `index` next, unless the same operations led to the same state before.
    fn place(&mut self, index: usize, others: &mut Vec<usize>) -> bool {
        let step = &self.steps[index];
        let Some(after) = self.model.step(&self.state, step.input, step.output) else {
            return false;
        };
        self.placed.insert(index);
        if !self.seen.insert((self.placed.window(), after.clone())) {
            self.placed.remove(index);
            return false;
        }
        let before = std::mem::replace(&mut self.state, after);
        self.path.push(Choice { step: index, before, others: std::mem::take(others) });
        self.returns_left -= usize::from(step.return_ns.is_some());
        self.events.lift(index);
        true
    }

    /// Undoes the last placement; what else there was to place, or `None` when all was tried.
    fn take_back(&mut self) -> Option<Vec<usize>> {
        let Choice { step, before, others } = self.path.pop()?;
        self.state = before;
        self.placed.remove(step);
        self.returns_left += usize::from(self.steps[step].return_ns.is_some());
        self.events.put_back(step);
        Some(others)
    }

    fn explanation(&self) -> Explanation<M::State> {
        let unplaced =
            (0..self.steps.len()).filter(|index| !self.placed.contains(*index)).collect();
        Explanation { state: self.state.clone(), unplaced }
    }
}

/// What happens at a point in time.
#[derive(Clone, Copy, Debug)]
enum Event {
    Call(usize),
    Return,
    End,
}

/// Calls and returns in their order, as a list from which operations can be taken and put back in
/// reverse without a search.
#[derive(Debug)]
struct Events {
    events: Vec<Event>,
    next: Vec<usize>,
    previous: Vec<usize>,
    calls: Vec<usize>,
    returns: Vec<Option<usize>>,
}

/// The place before the first event.
const HEAD: usize = 0;

impl Events {
    fn new<I, O>(steps: &[Step<'_, I, O>]) -> Self {
        let calls = steps.iter().enumerate().map(|(index, step)| (step.call_ns, false, index));
        let returns = steps
            .iter()
            .enumerate()
            .filter_map(|(index, step)| step.return_ns.map(|at_ns| (at_ns, true, index)));
        let mut order: Vec<(u64, bool, usize)> = calls.chain(returns).collect();
        // At the same time calls come first: who knows which was earlier?
        order.sort_unstable();
        let mut events = vec![Event::End];
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
                events.push(Event::Return);
            } else {
                list.calls[index] = events.len();
                events.push(Event::Call(index));
            }
        }
        events.push(Event::End);
        list.next = (1..=events.len()).collect();
        list.previous = (0..events.len()).map(|place| place.saturating_sub(1)).collect();
        list.events = events;
        list
    }

    fn first(&self) -> usize {
        self.next[HEAD]
    }

    fn after(&self, place: usize) -> usize {
        self.next[place]
    }

    fn at(&self, place: usize) -> Event {
        self.events[place]
    }

    fn lift(&mut self, index: usize) {
        self.unlink(self.calls[index]);
        if let Some(place) = self.returns[index] {
            self.unlink(place);
        }
    }

    fn put_back(&mut self, index: usize) {
        if let Some(place) = self.returns[index] {
            self.link(place);
        }
        self.link(self.calls[index]);
    }

    fn unlink(&mut self, place: usize) {
        let (previous, next) = (self.previous[place], self.next[place]);
        self.next[previous] = next;
        self.previous[next] = previous;
    }

    fn link(&mut self, place: usize) {
        self.next[self.previous[place]] = place;
        self.previous[self.next[place]] = place;
    }
}
