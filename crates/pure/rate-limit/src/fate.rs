//! Statements that were proposed, and their outcomes.

use std::collections::BTreeMap;

use crate::{Scope, Units};

/// Outcome of a proposed statement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// The statement was applied; the agreed state has the rest.
    TakenIn,
    /// The statement was not applied, and never will be.
    Never,
    /// The statement may be applied at any time, or never.
    Unknown,
}

/// A statement that may be applied at any time. Until that is known, its process holds no more than
/// the statement promises.
#[derive(Clone, Debug)]
pub(crate) struct Pending {
    pub(crate) serial: u64,
    /// Time just before the statement was made.
    pub(crate) at_ns: u64,
    /// Floor and lease that the statement keeps of each limit.
    pub(crate) lines: BTreeMap<Scope, (Units, Units)>,
    /// True if an earlier statement is part of this. It may be applied even if the later one is not.
    pub(crate) has_earlier: bool,
}

impl Pending {
    /// Keeps to `earlier` as well: takes the lower floor and lease of both.
    pub(crate) fn take_over(&mut self, earlier: Self) {
        self.has_earlier = true;
        for (scope, (floor, lease)) in earlier.lines {
            let said = self.lines.entry(scope).or_insert((floor, lease));
            said.0 = Units::each(|kind| said.0[kind].min(floor[kind]));
            said.1 = Units::each(|kind| said.1[kind].min(lease[kind]));
        }
    }
}
