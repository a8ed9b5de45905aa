//! Who holds what of a limit.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use spillway_control::{LimitScope, State};
use spillway_quota::{LimitKind, RequestWindow, Units, Usage};
use spillway_types::{NodeName, RegionName};

/// Who holds what of a limit, as the cluster agreed on it.
#[derive(Debug, Default, Serialize, Deserialize, JsonSchema)]
pub(crate) struct LimitInfo {
    /// In the order of their names; none as long as no node has spoken of the limit.
    pub(crate) regions: Vec<LimitRegion>,
    /// How it stands if it is of the config file of the node that answers: such a limit can't be
    /// changed here.
    pub(crate) file: Option<FileLimit>,
}

/// How a limit of a config file stands.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct FileLimit {
    /// A limit of the cluster with the same name takes its place.
    pub(crate) is_replaced: bool,
    /// What counts now.
    pub(crate) used: LimitUnits,
}

/// What the nodes of a region hold of a limit together.
#[derive(Debug, Default, Serialize, Deserialize, JsonSchema)]
pub(crate) struct LimitRegion {
    /// The region.
    pub(crate) region: String,
    /// What it may use whatever happens.
    pub(crate) floor: LimitUnits,
    /// What it may use besides, as long as it is heard of.
    pub(crate) leased: LimitUnits,
    /// What it said last that it needs besides the floor.
    pub(crate) needed: LimitUnits,
}

/// A number of each kind; 0 for what is not limited.
#[derive(Debug, Default, Serialize, Deserialize, JsonSchema)]
pub(crate) struct LimitUnits {
    /// Requests a second.
    pub(crate) requests_per_s: u64,
    /// Requests a minute.
    pub(crate) requests_per_min: u64,
    /// Tokens a minute.
    pub(crate) tokens_per_min: u64,
    /// Requests at a time.
    pub(crate) concurrency: u64,
}

impl LimitInfo {
    /// As it is in this state.
    pub(crate) fn of(state: &State, scope: &LimitScope) -> Self {
        let Some(pool) = state.shares().pool(&scope.into()) else { return Self::default() };
        let limit = state.records().limits.get(scope);
        let window = limit.and_then(|limit| limit.requests()).map(|(_, window)| window);
        let window = window.unwrap_or_default();
        let region_of =
            |node: &NodeName| state.node(node).map(|(_, node)| node.spec.region.clone());
        let mut regions: BTreeMap<RegionName, LimitRegion> = BTreeMap::new();
        for (node, floor) in pool.floors() {
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

    /// How one of the node's config file stands.
    pub(crate) fn of_file(requests: RequestWindow, usage: Option<&Usage>) -> Self {
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
