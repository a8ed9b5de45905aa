//! Metrics of limits.

use std::sync::Arc;
use std::time::Instant;

use spillway_rate_limit::{LimitKind, LimitTerms, LimitUsage, OwnLimits, Quotas};
use spillway_request::gateway::ClientState;
use spillway_telemetry::LiveLimit;

/// Maximum number of limits that are shown: each is three series a kind. Of more, those with the
/// first names are shown.
const LIMITS_MAX: usize = 256;

/// Source of the config's limits for the admin API.
#[derive(Debug)]
pub struct FileLimits(pub Arc<ClientState>);

impl OwnLimits for FileLimits {
    fn own_limits(&self, most: usize) -> Vec<(LimitTerms, Option<LimitUsage>)> {
        self.0.quotas.own(Instant::now(), most)
    }
}

/// Returns the figures of limits on this node.
pub fn live(quotas: &Quotas) -> Vec<LiveLimit> {
    let standings = quotas.standings(Instant::now(), LIMITS_MAX).into_iter();
    let kinds = standings.flat_map(|(terms, usage)| {
        let whole = terms.whole;
        let kinds = LimitKind::ALL.into_iter().filter(move |kind| whole[*kind as usize].is_some());
        kinds.map(move |kind| LiveLimit {
            limit: terms.scope.label(),
            kind: kind.name(terms.requests),
            share: usage.held[kind],
            used: usage.in_use[kind],
            debt: usage.debt[kind],
        })
    });
    kinds.collect()
}
