//! Operations and the order of their beginnings and ends.

use serde::{Deserialize, Serialize};

/// One operation of one client on one key.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq, Serialize)]
pub struct Operation<K, I, O> {
    /// Whose it is; only for people to read.
    pub client: u32,
    /// What it is about.
    pub key: K,
    /// What was asked.
    pub input: I,
    /// When, on a clock that all clients share and that never goes back.
    pub call_ns: u64,
    /// How it ended.
    pub end: End<O>,
}

/// How an operation ended.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum End<O> {
    /// With an answer.
    Returned {
        /// When it was there.
        at_ns: u64,
        /// The answer.
        output: O,
    },
    /// Without one: it takes effect at any time after it was sent, or never.
    Unknown,
    /// It certainly had no effect, as with a refusal.
    Failed,
}

/// An operation of one key, as the search sees it.
#[derive(Debug)]
pub(crate) struct Step<'a, I, O> {
    pub(crate) input: &'a I,
    /// `None` for an unknown end.
    pub(crate) output: Option<&'a O>,
    pub(crate) call_ns: u64,
    /// `None` for an unknown end.
    pub(crate) return_ns: Option<u64>,
    /// Where it stands in the whole history.
    pub(crate) index: usize,
}

/// Not derived: neither needs to be copied for the step to be.
impl<I, O> Clone for Step<'_, I, O> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<I, O> Copy for Step<'_, I, O> {}

impl<'a, I, O> Step<'a, I, O> {
    /// `None` for an operation without effect.
    pub(crate) fn new<K>(index: usize, operation: &'a Operation<K, I, O>) -> Option<Self> {
        let (output, return_ns) = match &operation.end {
            End::Returned { at_ns, output } => (Some(output), Some(*at_ns)),
            End::Unknown => (None, None),
            End::Failed => return None,
        };
        let Operation { input, call_ns, .. } = operation;
        Some(Self { input, output, call_ns: *call_ns, return_ns, index })
    }

    /// The same with nobody knowing how it ended.
    pub(crate) fn pending(self) -> Self {
        Self { output: None, return_ns: None, ..self }
    }
}
