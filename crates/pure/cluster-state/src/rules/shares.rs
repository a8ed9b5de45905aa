//! Rules for leases on shares of limits.

use std::collections::{BTreeMap, BTreeSet};

use spillway_rate_limit::{
    AgreedLimits, Ground, LimitKind, PoolTerms, ROWS_MAX, Scope, Statement, StatementError,
    UNITS_MAX, floors,
};
use spillway_types::{NodeName, RegionName};

use crate::records::lookup::setting;
use crate::rules::check;
use crate::state::{Done, Turn};
use crate::{
    ApplyError, CommandError, LEASE_MS, Limit, LimitScope, PLACE_MS, Records, RefusalCode,
};

/// Applies a statement of a process of the proposing node. No other node may make it: only the node
/// itself knows which shares may still be in use.
pub(super) fn lease(
    turn: &mut Turn<'_>,
    region: &RegionName,
    said: &Statement,
) -> Result<Done, ApplyError> {
    turn.check_owner(region)?;
    if said.run.node != turn.entry.proposer.node {
        let cause = format!("node {} speaks for {}", turn.entry.proposer.node, said.run.node);
        return Err(CommandError::new(RefusalCode::NotOwner, cause, "let the node say it").into());
    }
    for line in &said.lines {
        check::limit_scope(&LimitScope::from(&line.scope))?;
    }
    for overdue in &said.overdue {
        check::name(overdue.run.node.as_str(), "node")?;
    }
    let roster = roster(turn.records);
    let members = roster.values().flatten().cloned().collect();
    let terms = |scope: &Scope| {
        let limit = turn.records.limits.get(&LimitScope::from(scope))?;
        Some(terms_of(limit, &roster))
    };
    let ground = Ground { members: &members, terms: &terms, rows_max: ROWS_MAX };
    turn.shares.apply(said, &ground).map_err(refusal)?;
    // Shares are no record: without this the entry would count as unchanged.
    turn.is_written = true;
    Ok(Done::default())
}

/// Returns the terms of all limits and the nodes that share them, for a node of `region`.
pub(crate) fn agreed_limits(records: &Records, region: &RegionName) -> AgreedLimits {
    let roster = roster(records);
    let limits = records.limits.iter();
    let terms = limits.map(|(scope, limit)| (scope.into(), terms_of(limit, &roster)));
    let number = |name: &str| setting(records, name).and_then(|value| value.parse().ok());
    AgreedLimits {
        terms: terms.collect(),
        members: roster.values().flatten().cloned().collect(),
        siblings: roster.get(region).into_iter().flatten().cloned().collect(),
        // Without a number, the safe side: the places of a node are never taken over, and no lease
        // lasts.
        place_ms: number(PLACE_MS).unwrap_or(u64::MAX),
        lease_ms: number(LEASE_MS).and_then(|ms| u32::try_from(ms).ok()).unwrap_or(0),
    }
}

/// Returns the nodes of each region in the order of their names.
fn roster(records: &Records) -> BTreeMap<RegionName, Vec<NodeName>> {
    let mut roster: BTreeMap<RegionName, BTreeSet<NodeName>> = BTreeMap::new();
    for (_, node) in records.nodes.iter() {
        roster.entry(node.spec.region.clone()).or_default().insert(node.spec.name.clone());
    }
    roster.into_iter().map(|(region, nodes)| (region, nodes.into_iter().collect())).collect()
}

fn terms_of(limit: &Limit, roster: &BTreeMap<RegionName, Vec<NodeName>>) -> PoolTerms {
    let whole = LimitKind::ALL.map(|kind| {
        let units = match kind {
            LimitKind::RequestRate => limit.requests().map(|(count, _)| u64::from(count)),
            LimitKind::TokenRate => limit.tokens_per_min,
            LimitKind::Concurrency => limit.concurrency.map(u64::from),
        };
        units.map(|units| units.min(UNITS_MAX))
    });
    PoolTerms {
        whole,
        floors: floors(whole, &limit.floors_permille, roster),
        requests: limit.requests().map(|(_, window)| window).unwrap_or_default(),
        nodes: roster.values().map(Vec::len).sum(),
    }
}

fn refusal(fault: StatementError) -> CommandError {
    match fault {
        StatementError::Stale => CommandError::new(
            RefusalCode::StaleEpoch,
            "the node has said something newer",
            "go by the state as it is now",
        ),
        StatementError::TooLong => CommandError::new(
            RefusalCode::LimitReached,
            "the statement speaks of too much",
            "say the rest in the next one",
        ),
        StatementError::TooManyRuns => CommandError::new(
            RefusalCode::LimitReached,
            "earlier processes of the node may still be using what they had",
            "wait until their leases have ended",
        ),
    }
}
