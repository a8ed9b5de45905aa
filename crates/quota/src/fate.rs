//! Statements on their way.

use std::collections::BTreeMap;

use crate::{Scope, Units};

/// What became of a statement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// It was taken in: the agreed state says the rest.
    TakenIn,
    /// It never will be taken in.
    Never,
    /// It may be taken in at any time, or never.
    Unknown,
}

/// A statement that may be taken in at any time. As long as that is so, its process keeps to it.
#[derive(Clone, Debug)]
pub(crate) struct Pending {
    pub(crate) serial: u64,
    /// Before it was said.
    pub(crate) at_ns: u64,
    /// Floor and lease that it keeps.
    pub(crate) lines: BTreeMap<Scope, (Units, Units)>,
}

impl Pending {
    /// Keeps to an earlier statement as well.
    pub(crate) fn take_over(&mut self, earlier: Self) {
        for (scope, (floor, lease)) in earlier.lines {
            let said = self.lines.entry(scope).or_insert((floor, lease));
            said.0 = Units::each(|kind| said.0[kind].min(floor[kind]));
            said.1 = Units::each(|kind| said.1[kind].min(lease[kind]));
        }
    }
}
