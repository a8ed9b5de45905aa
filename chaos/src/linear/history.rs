//! Operations of a history, with their starts and ends.

use serde::{Deserialize, Serialize};

/// Operation of one client on one key.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq, Serialize)]
pub struct Operation<K, I, O> {
    /// Number of the client. Only for people: the check does not use it.
    pub client: u32,
    /// Key that the operation reads or changes.
    pub key: K,
    /// Request of the client.
    pub input: I,
    /// Time of the call in nanoseconds, on a monotonic clock that all clients share.
    pub call_ns: u64,
    /// End of the operation.
    pub end: OperationEnd<O>,
}

/// End of an operation.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum OperationEnd<O> {
    /// The client got an answer.
    Returned {
        /// Time of the answer in nanoseconds, on the clock of `call_ns`.
        at_ns: u64,
        /// Answer.
        output: O,
    },
    /// The client got no answer: the operation takes effect at any time after the call, or never.
    Unknown,
    /// The operation certainly had no effect; a refusal, for example.
    Failed,
}

/// Operation of one key, in the form that the search needs.
#[derive(Debug)]
pub(crate) struct HistoryStep<'a, I, O> {
    pub(crate) input: &'a I,
    /// Answer; `None` for an unknown end.
    pub(crate) output: Option<&'a O>,
    pub(crate) call_ns: u64,
    /// Time of the answer in nanoseconds; `None` for an unknown end.
    pub(crate) return_ns: Option<u64>,
    /// Index in the whole history.
    pub(crate) index: usize,
}

/// By hand: a derived one would ask that `I` and `O` are `Clone`, too.
impl<I, O> Clone for HistoryStep<'_, I, O> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<I, O> Copy for HistoryStep<'_, I, O> {}

impl<'a, I, O> HistoryStep<'a, I, O> {
    /// Returns the step of an operation; `None` if it had no effect.
    pub(crate) fn new<K>(index: usize, operation: &'a Operation<K, I, O>) -> Option<Self> {
        let (output, return_ns) = match &operation.end {
            OperationEnd::Returned { at_ns, output } => (Some(output), Some(*at_ns)),
            OperationEnd::Unknown => (None, None),
            OperationEnd::Failed => return None,
        };
        let Operation { input, call_ns, .. } = operation;
        Some(Self { input, output, call_ns: *call_ns, return_ns, index })
    }

    /// Returns a copy with an unknown end.
    pub(crate) fn pending(self) -> Self {
        Self { output: None, return_ns: None, ..self }
    }
}
