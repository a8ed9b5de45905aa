//! What metrics show of limits.

use std::time::Instant;

use spillway_proxy::Gateway;
use spillway_quota::LimitKind;
use spillway_telemetry::LiveLimit;

/// Limits that are shown: each is three series a kind. Of more, those with the first names.
const LIMITS_MAX: usize = 256;

/// How limits stand on this node.
pub(crate) fn live(gateway: &Gateway) -> Vec<LiveLimit> {
    let standings = gateway.quotas().standings(Instant::now(), LIMITS_MAX).into_iter();
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
