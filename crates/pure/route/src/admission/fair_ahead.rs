//! Number of requests served before a given one, where tenants take turns.

use std::collections::BTreeMap;

/// Waiting requests of one tenant and their tokens; both may be fractions.
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
    /// Adds to the backlog of a tenant; `weight` is 0 where it is unknown, which is where nothing
    /// waits.
    pub(super) fn add(&mut self, tenant: u64, requests: f32, cost: f32, weight: u16) {
        let backlog = self.0.entry(tenant).or_default();
        backlog.requests += requests;
        backlog.cost += cost;
        backlog.weight = backlog.weight.max(weight);
    }

    /// Returns the requests served before a request of `tenant` that costs `cost` tokens and waits
    /// behind `own`: all of `own`, and of each other tenant what its share allows by then.
    pub(super) fn ahead(&self, tenant: u64, own: Backlog, cost: f32) -> f32 {
        let paid = (own.cost + cost) / f32::from(own.weight.max(1));
        let others = self.0.iter().filter(|&(&other, _)| other != tenant);
        let part = |(_, other): (&u64, &Backlog)| {
            // By then each other tenant was served as many tokens, in proportion to the weights.
            let share = paid * f32::from(other.weight.max(1)) / other.cost.max(1.0);
            other.requests * share.min(1.0)
        };
        own.requests + others.map(part).sum::<f32>()
    }
}
