//! Observations of a journey, for metrics and for the record of the request.

use crate::decision::ComparedCosts;

/// Observations of a journey since they were last taken. They influence no decision.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Notes {
    /// Result of the last comparison of regions; `None` if there was none.
    pub compared: Option<ComparedCosts>,
    /// Comparisons of regions by a policy that reads caches.
    pub cache_comparisons: u32,
    /// Number of [`Notes::cache_comparisons`] whose result would be another one if nothing of the
    /// prompt were cached in other regions.
    pub cache_changes: u32,
    /// Regions that were chosen, and then not asked, because they may not serve the request.
    pub regions_forbidden: u32,
}
