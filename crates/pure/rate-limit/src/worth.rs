//! Judgement whether a limit is worth a line in the next statement.

use crate::seen::LimitView;
use crate::{LimitKind, Units};

/// Urgency of a limit in the next statement.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Worth {
    Nothing,
    /// A line, once leases are renewed.
    AtRenewal,
    Line,
    /// Another process waits for units of the limit.
    Urgent,
}

/// Returns the urgency of a limit that this process has named before, by its need beyond the floor
/// and the units that count.
pub(crate) fn worth(seen: &LimitView, lease_need: Units, in_use: Units, is_renewal: bool) -> Worth {
    let told = seen.need.unwrap_or_default();
    let is_urgent = |kind| {
        lease_need[kind] > seen.lease[kind] && lease_need[kind] > told[kind] + told[kind] / 8
    };
    // A process that has stated that it needs more than it has gets no more by stating another
    // number. Needs that change with each refusal would fill the log.
    let counts = |kind| lease_need[kind].min(told[kind]) <= seen.lease[kind];
    let has_changed =
        |kind| counts(kind) && lease_need[kind].abs_diff(told[kind]) > 1 + told[kind] / 8;
    // Nodes that wait for units can't know that this node no longer needs them.
    let is_awaited = |kind| {
        seen.is_wanted[kind as usize] && has_changed(kind) && lease_need[kind] < told[kind] / 2
    };
    if LimitKind::ALL.into_iter().any(|kind| is_urgent(kind) || is_awaited(kind))
        || can_give(seen, in_use)
    {
        return Worth::Urgent;
    }
    // A large part of the stated need is not needed any more: others count on less than they could
    // have.
    let has_fallen = |kind| {
        let most = seen.whole[kind as usize].unwrap_or(0) / 8;
        counts(kind) && told[kind].saturating_sub(lease_need[kind]) > most
    };
    let has_fallen = LimitKind::ALL.into_iter().any(has_fallen);
    let has_changed = LimitKind::ALL.into_iter().any(has_changed);
    match (seen.is_settled, has_changed) {
        (true, false) => Worth::Nothing,
        (true, true) if !is_renewal && !has_fallen => Worth::AtRenewal,
        _ if seen.is_divided => Worth::Line,
        _ => Worth::Urgent,
    }
}

/// Returns true if this node can give away enough of a limit to be worth a line.
pub(crate) fn can_give(seen: &LimitView, in_use: Units) -> bool {
    let (floor, lease) = seen.kept();
    if (floor, lease) == (seen.floor, seen.lease) {
        return false;
    }
    let (floor_said, lease_said) = seen.said(in_use);
    LimitKind::ALL.into_iter().any(|kind| {
        let before = seen.floor[kind] + seen.lease[kind];
        let after = floor_said[kind] + lease_said[kind];
        let least = seen.whole[kind as usize].unwrap_or(0) / 64;
        after < before && (before - after > least || after == floor[kind] + lease[kind])
    })
}
