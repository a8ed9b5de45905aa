//! View of one limit by one process.

use std::collections::BTreeMap;

use crate::agreed_limits::AgreedLimits;
use crate::{LimitKind, Pool, PoolTerms, RequestWindow, Run, Scope, Shares, Units};

/// Limit in the agreed state, as one process sees it. It stays the same until the division of the
/// limit or its terms change.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LimitView {
    /// The whole limit by kind; None for kinds without a limit.
    pub(crate) whole: [Option<u64>; 3],
    pub(crate) requests: RequestWindow,
    /// Floor and lease that this process has.
    pub(crate) floor: Units,
    pub(crate) lease: Units,
    /// Need in the last statement of this process; None if it never named this limit.
    pub(crate) need: Option<Units>,
    /// Highest floor and lease that are fair while others wait for units.
    pub(crate) floor_most: Units,
    pub(crate) lease_most: Units,
    /// Units that this process would hold soon if it needed all there is: those it has, and those
    /// that no other process needs.
    pub(crate) reach: Units,
    /// The most that this process may ever hold while other nodes keep their floors.
    pub(crate) most: Units,
    /// Kinds of which another process needs more than it has.
    pub(crate) is_wanted: [bool; 3],
    /// True if the units that this process has are its share by the present terms.
    pub(crate) is_divided: bool,
    /// True if nothing is left to give out.
    pub(crate) is_settled: bool,
}

impl LimitView {
    pub(crate) fn new(run: &Run, shares: &Shares, limits: &AgreedLimits, scope: &Scope) -> Self {
        static NO_TERMS: PoolTerms = PoolTerms {
            whole: [None; 3],
            floors: BTreeMap::new(),
            requests: RequestWindow::Second,
            nodes: 0,
        };
        let terms = limits.terms.get(scope).unwrap_or(&NO_TERMS);
        let pool = shares.pool(scope);
        let lease = pool.and_then(|pool| pool.lease(run));
        let whole = |kind| terms.whole[kind as usize].unwrap_or(0);
        let is_of_terms =
            |pool: &Pool| LimitKind::ALL.iter().all(|k| pool.whole()[*k] == whole(*k));
        let mut seen = Self {
            whole: terms.whole,
            requests: terms.requests,
            floor: pool.map(|pool| pool.floor(&run.node)).unwrap_or_default(),
            lease: lease.map(|lease| lease.held).unwrap_or_default(),
            need: lease.map(|lease| lease.need),
            floor_most: terms.floors.get(&run.node).copied().unwrap_or_default(),
            lease_most: Units([u64::MAX; 3]),
            reach: Units::NONE,
            most: Units::each(whole),
            is_wanted: [false; 3],
            is_divided: lease.is_some() && pool.is_some_and(is_of_terms),
            is_settled: pool.is_none_or(|pool| pool.is_settled(terms)),
        };
        if let Some(pool) = pool {
            let is_limited = |kind| terms.whole[kind as usize].is_some();
            seen.most = Units::each(|kind| match is_limited(kind) {
                true => pool.surplus(terms, kind).saturating_add(seen.floor[kind]),
                false => 0,
            });
            seen.reach = Units::each(|kind| match is_limited(kind) {
                true => pool.reach(run, terms, kind),
                false => 0,
            });
            let place = pool.leases().keys().position(|holder| holder == run);
            let taken = pool.taken();
            let others = || pool.leases().iter().filter(|(holder, _)| *holder != run);
            seen.is_wanted = LimitKind::ALL
                .map(|kind| others().any(|(_, lease)| lease.need[kind] > lease.held[kind]));
            seen.lease_most = Units::each(|kind| {
                // Most limits are of one kind, so there is nothing to divide of the others.
                if terms.whole[kind as usize].is_none() && taken[kind] == 0 {
                    return u64::MAX;
                }
                let targets = pool.targets(terms, kind);
                let is_short = pool.is_short(terms, kind, &targets);
                place.filter(|_| is_short).map_or(u64::MAX, |place| targets[place])
            });
        }
        seen
    }

    /// Returns the floor and lease that this process goes on using.
    pub(crate) fn kept(&self) -> (Units, Units) {
        (least(self.floor, self.floor_most), least(self.lease, self.lease_most))
    }

    /// Returns the floor and lease that a statement can promise to keep: those of [`Self::kept`],
    /// and the units charged beyond them. Read `in_use` once meters hold no more than
    /// [`Self::kept`], so that no more is charged after the read.
    pub(crate) fn said(&self, in_use: Units) -> (Units, Units) {
        let (mut floor, mut lease) = self.kept();
        for kind in LimitKind::ALL {
            let beyond = in_use[kind].saturating_sub(floor[kind] + lease[kind]);
            let to_lease = beyond.min(self.lease[kind] - lease[kind]);
            lease[kind] += to_lease;
            floor[kind] += (beyond - to_lease).min(self.floor[kind] - floor[kind]);
        }
        (floor, lease)
    }
}

pub(crate) fn least(one: Units, other: Units) -> Units {
    Units::each(|kind| one[kind].min(other[kind]))
}
