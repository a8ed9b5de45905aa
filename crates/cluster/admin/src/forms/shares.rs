//! Forms of the shares of limits.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use spillway_cluster_state::{LimitScope, State};
use spillway_rate_limit::{LimitKind, LimitUsage, RequestWindow, Units};
use spillway_types::{NodeName, RegionName};

/// Shares of a limit, as the cluster agreed on them.
#[derive(Debug, Default, Serialize, Deserialize, JsonSchema)]
pub(crate) struct LimitInfo {
    /// Regions in the order of their names; empty until a node has reported on the limit.
    pub(crate) regions: Vec<LimitRegion>,
    /// State of a limit of the answering node's config file, which can't be changed here; null for
    /// a limit of the cluster.
    pub(crate) file: Option<FileLimit>,
}

/// State of a limit of a config file.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct FileLimit {
    /// True if a limit of the cluster with that name is used instead.
    pub(crate) is_replaced: bool,
    /// Use that counts now.
    pub(crate) used: LimitUnits,
}

/// Share of a limit that the nodes of a region hold together.
#[derive(Debug, Default, Serialize, Deserialize, JsonSchema)]
pub(crate) struct LimitRegion {
    /// Name of the region.
    pub(crate) region: String,
    /// Part that the region may always use.
    pub(crate) floor: LimitUnits,
    /// Part beyond the floor that the region may use, as long as it is heard of.
    pub(crate) leased: LimitUnits,
    /// Part beyond the floor that the region last asked for.
    pub(crate) needed: LimitUnits,
}

/// A number of each kind; 0 for a kind that is not limited.
#[derive(Debug, Default, Serialize, Deserialize, JsonSchema)]
pub(crate) struct LimitUnits {
    /// Requests per second.
    pub(crate) requests_per_s: u64,
    /// Requests per minute.
    pub(crate) requests_per_min: u64,
    /// Tokens per minute.
    pub(crate) tokens_per_min: u64,
    /// Requests at a time.
    pub(crate) concurrency: u64,
}

impl LimitInfo {
    /// Returns the shares of a limit in `state`.
    pub(crate) fn of(state: &State, scope: &LimitScope) -> Self {
        let Some(pool) = state.shares().pool(&scope.into()) else { return Self::default() };
        let limit = state.records().limits.get(scope);
        let window = limit.and_then(|limit| limit.requests()).map(|(_, window)| window);
        let window = window.unwrap_or_default();
        let region_of =
            |node: &NodeName| state.node(node).map(|(_, node)| node.spec.region.clone());
        let mut regions: BTreeMap<RegionName, LimitRegion> = BTreeMap::new();
        for (node, floor) in pool.floors() {
            // A node that is no member any more counts for no region.
            if let Some(region) = region_of(node) {
                regions.entry(region).or_default().floor.add(*floor, window);
            }
        }
        for (run, lease) in pool.leases() {
            if let Some(region) = region_of(&run.node) {
                let region = regions.entry(region).or_default();
                region.leased.add(lease.held, window);
                region.needed.add(lease.need, window);
            }
        }
        let named = |(name, region): (RegionName, LimitRegion)| LimitRegion {
            region: name.to_string(),
            ..region
        };
        Self { regions: regions.into_iter().map(named).collect(), file: None }
    }

    /// Returns the state of a limit of the node's config file; without `usage`, a limit of the
    /// cluster replaces it.
    pub(crate) fn of_file(requests: RequestWindow, usage: Option<&LimitUsage>) -> Self {
        let mut used = LimitUnits::default();
        used.add(usage.map(|usage| usage.in_use).unwrap_or_default(), requests);
        let file = FileLimit { is_replaced: usage.is_none(), used };
        Self { regions: Vec::new(), file: Some(file) }
    }
}

impl LimitUnits {
    fn add(&mut self, units: Units, window: RequestWindow) {
        let requests = match window {
            RequestWindow::Second => &mut self.requests_per_s,
            RequestWindow::Minute => &mut self.requests_per_min,
        };
        *requests += units[LimitKind::RequestRate];
        self.tokens_per_min += units[LimitKind::TokenRate];
        self.concurrency += units[LimitKind::Concurrency];
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_shown_as_they_are_counted() {
        let shown = |window| {
            let mut units = LimitUnits::default();
            units.add(Units([7, 8, 9]), window);
            (units.requests_per_s, units.requests_per_min, units.tokens_per_min, units.concurrency)
        };
        assert_eq!(shown(RequestWindow::Second), (7, 0, 8, 9));
        assert_eq!(shown(RequestWindow::Minute), (0, 7, 8, 9));
    }
}
