//! How many requests are served before another one where tenants take turns.

use std::collections::BTreeMap;

/// What stands in line of one tenant: requests and their tokens, both perhaps in parts.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Backlog {
    pub(super) requests: f32,
    pub(super) cost: f32,
    pub(super) weight: u16,
}

/// Backlogs of one class by tenant.
#[derive(Clone, Debug, Default)]
pub(super) struct Backlogs(BTreeMap<u64, Backlog>);

impl Backlogs {
    /// Adds what a tenant has; the weight is known where something waits, and 0 elsewhere.
    pub(super) fn add(&mut self, tenant: u64, (requests, cost): (f32, f32), weight: u16) {
        let backlog = self.0.entry(tenant).or_default();
        backlog.requests += requests;
        backlog.cost += cost;
        backlog.weight = backlog.weight.max(weight);
    }

    /// Requests that are served before one of this tenant that costs so much and stands behind `own`
    /// of its own tenant: all of those, and of each other tenant what its share allows by then.
    pub(super) fn ahead(&self, tenant: u64, own: Backlog, cost: f32) -> f32 {
        let paid = (own.cost + cost) / f32::from(own.weight.max(1));
        let others = self.0.iter().filter(|&(&other, _)| other != tenant);
        let part = |(_, other): (&u64, &Backlog)| {
            let share = paid * f32::from(other.weight.max(1)) / other.cost.max(1.0);
            other.requests * share.min(1.0)
        };
        own.requests + others.map(part).sum::<f32>()
    }
}
