//! Comparison of regions for one request.

use crate::RegionName;

/// Costs of serving a request here and in the best other region, in milliseconds of time to first
/// token and what else was weighed.
#[derive(Clone, Debug, PartialEq)]
pub struct Compared {
    /// Cost here; `None` if no replica here could serve it.
    pub here_ms: Option<f32>,
    /// The cheapest other region that could take it; `None` if none could.
    pub best: Option<(RegionName, f32)>,
    /// Reason for the decision, from a fixed list.
    pub reason: &'static str,
}
