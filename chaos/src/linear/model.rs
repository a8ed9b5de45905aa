//! Model of an object that one client at a time uses.

use std::fmt::Debug;
use std::hash::Hash;

use super::history::HistoryStep;

/// Object with one state per key.
pub trait Model {
    /// State that later answers depend on.
    type State: Clone + Debug + Eq + Hash;
    /// Request of a client.
    type Input: Clone + Debug;
    /// Answer to a request.
    type Output: Clone + Debug;

    /// Returns the state before the first operation.
    fn initial(&self) -> Self::State;

    /// Returns the state after `input`, or `None` if `output` is no possible answer in `state`.
    ///
    /// Without an `output` the answer is unknown: the operation took effect with any answer that
    /// fits. The search itself covers operations that never took effect.
    fn step(
        &self,
        state: &Self::State,
        input: &Self::Input,
        output: Option<&Self::Output>,
    ) -> Option<Self::State>;

    /// Returns a number that grows with the order of effects, if `output` shows one: a version or a
    /// position in a log. The hint changes no verdict, only the order of the search.
    fn order_hint(&self, output: &Self::Output) -> Option<u64> {
        let _ = output;
        None
    }

    /// Returns true if `input` never changes the object. Only makes counter-examples shorter.
    fn only_reads(&self, input: &Self::Input) -> bool {
        let _ = input;
        false
    }
}

/// Operations of one key.
pub(crate) type Steps<'a, M> = Vec<HistoryStep<'a, <M as Model>::Input, <M as Model>::Output>>;
