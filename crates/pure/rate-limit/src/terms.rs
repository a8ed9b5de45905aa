//! Terms of a limit.

use crate::{RequestWindow, Scope};

/// Terms of a limit: how much it allows in all regions together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LimitTerms {
    /// Scope of the limit.
    pub scope: Scope,
    /// The whole limit by kind, in the order of [`crate::LimitKind::ALL`]; None for kinds without a
    /// limit.
    pub whole: [Option<u64>; 3],
    /// Time over which requests are counted.
    pub requests: RequestWindow,
}
