//! Facts that follow from the division of limits, kept so that no look or statement counts again.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use spillway_types::NodeName;

use crate::{Run, RunRow, Scope};

/// Statements whose limits are remembered. A node looks four times a second, so this is enough for
/// two hundred statements a second.
const STATEMENTS_MAX: usize = 64;
/// Most limits remembered of a statement. One that changed more has changed everything.
const LIMITS_MAX: usize = 1_024;

/// Facts derived from a division. They are no part of it: all are equal, and none is written.
#[derive(Clone, Debug, Default)]
pub(crate) struct Derived {
    /// Number of floors and leases; None if not counted yet.
    pub(crate) rows: Option<usize>,
    /// Nodes that all processes and floors belong to; None if that is not known.
    pub(crate) members: Option<BTreeSet<NodeName>>,
    /// The last statements, the newest last.
    statements: VecDeque<Changed>,
}

/// Limits that a statement changed; None if they are too many.
#[derive(Clone, Debug)]
struct Changed {
    run: Run,
    serial: u64,
    /// Shared, since every published state has a copy.
    scopes: Option<Arc<[Scope]>>,
}

impl Derived {
    /// Notes the limits that a statement may have changed.
    pub(crate) fn note(&mut self, run: &Run, serial: u64, scopes: BTreeSet<Scope>) {
        if self.statements.len() >= STATEMENTS_MAX {
            self.statements.pop_front();
        }
        let scopes = (scopes.len() <= LIMITS_MAX).then(|| scopes.into_iter().collect());
        self.statements.push_back(Changed { run: run.clone(), serial, scopes });
    }

    /// Returns the limits changed since `seen` were the last statements; None if any may have.
    pub(crate) fn since(&self, seen: &BTreeMap<Run, RunRow>) -> Option<Vec<&Scope>> {
        let mut scopes = Vec::new();
        for changed in self.statements.iter().rev() {
            // Not if it is just lower: the row of a node that was removed is dropped, and an earlier
            // statement of that node may be applied then.
            if seen.get(&changed.run).is_some_and(|row| row.serial == changed.serial) {
                return Some(scopes);
            }
            scopes.extend(changed.scopes.as_ref()?.iter());
        }
        // No statement that was seen is left: there may have been others in between.
        None
    }
}

impl PartialEq for Derived {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for Derived {}
