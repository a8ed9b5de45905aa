//! What an object would do if it were used by one client at a time.

use std::fmt::Debug;
use std::hash::Hash;

use super::history::Step;

/// An object with one state per key.
pub trait Model {
    /// Everything that later answers depend on.
    type State: Clone + Debug + Eq + Hash;
    /// What a client asks for.
    type Input: Clone + Debug;
    /// What it is answered.
    type Output: Clone + Debug;

    /// The state before the first operation.
    fn initial(&self) -> Self::State;

    /// The state after `input`, if `output` is a possible answer to it in `state`; else `None`.
    ///
    /// Without an `output` nobody saw the answer: then the operation took effect with any answer
    /// that fits. That it never took effect is not the model's concern.
    fn step(
        &self,
        state: &Self::State,
        input: &Self::Input,
        output: Option<&Self::Output>,
    ) -> Option<Self::State>;

    /// A number that grows with the order of effects, as far as `output` tells it: a version or
    /// a place in a log. It changes no verdict, only which orders are tried first.
    fn order_hint(&self, output: &Self::Output) -> Option<u64> {
        let _ = output;
        None
    }

    /// True when `input` never changes the object. It only makes counter-examples shorter.
    fn only_reads(&self, input: &Self::Input) -> bool {
        let _ = input;
        false
    }
}

/// The operations of one key.
pub(crate) type Steps<'a, M> = Vec<Step<'a, <M as Model>::Input, <M as Model>::Output>>;
