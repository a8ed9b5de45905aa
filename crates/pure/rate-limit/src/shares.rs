//! Division of all limits, as all nodes agree.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use spillway_types::NodeName;

use crate::derived::Derived;
use crate::statement::{LINES_MAX, OVERDUE_MAX};
use crate::{Overdue, Pool, PoolTerms, Run, Scope, Statement};

/// Processes of one node that may hold units: the newest, and earlier ones whose leases have not
/// ended yet.
const RUNS_EACH_MAX: usize = 4;
/// Highest number of floors and leases of all limits together: a thousand limits on sixty nodes, or
/// ten thousand on six, each of which has one of both. They take about 12 MB of a snapshot.
pub const ROWS_MAX: usize = 131_072;

/// Division of all limits: a function of the statements that were applied, in their order. It reads
/// no clock.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Shares {
    runs: BTreeMap<Run, RunRow>,
    pools: BTreeMap<Scope, Pool>,
    #[serde(skip)]
    derived: Derived,
}

/// Last statement of a process, as far as it is remembered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunRow {
    /// Serial of the statement.
    pub serial: u64,
    /// Length of the leases in milliseconds, counted from just before the statement was made.
    pub length_ms: u32,
}

/// Rules by which a statement is judged, from records that all nodes agree on as well.
pub struct Ground<'a> {
    /// Registered nodes.
    pub members: &'a BTreeSet<NodeName>,
    /// Terms of a limit, with floors of registered nodes alone; None if there is no such limit.
    pub terms: &'a dyn Fn(&Scope) -> Option<PoolTerms>,
    /// Most floors and leases of all limits together: [`ROWS_MAX`], fewer in tests. Limits beyond get
    /// none.
    pub rows_max: usize,
}

/// Refusal of a statement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StatementError {
    /// The process, or a later one of the same node, has made a newer statement.
    Stale,
    /// The statement has too many lines or overdue processes.
    TooLong,
    /// Earlier processes of the node may still be using what they had.
    TooManyRuns,
}

impl Shares {
    /// Applies a statement.
    ///
    /// # Errors
    /// Returns why the statement is refused; nothing has changed then.
    pub fn apply(&mut self, said: &Statement, ground: &Ground<'_>) -> Result<(), StatementError> {
        // Before anything changes, so that a refusal leaves all as it was.
        self.check(said)?;
        // Limits that changed, and those of them whose free units are to be given out.
        let mut changed = self.keep(ground.members);
        let mut touched = BTreeSet::new();
        let row = RunRow { serial: said.serial, length_ms: said.length_ms };
        if !ground.members.contains(&said.run.node) {
            self.derived.members = None;
        }
        if self.runs.insert(said.run.clone(), row).is_none() {
            self.forget_idle(&said.run, &mut changed);
        }
        // A process takes over what earlier processes of its node had.
        let is_heir =
            |overdue: &&Overdue| overdue.run.node == said.run.node && overdue.run < said.run;
        let (inherited, ended): (Vec<_>, Vec<_>) = said.overdue.iter().partition(is_heir);
        for overdue in ended {
            touched.extend(self.end(overdue, None, &mut changed));
        }
        let mut rows = self.rows();
        for line in &said.lines {
            let new_rows = match self.pools.get(&line.scope) {
                Some(pool) => usize::from(pool.lease(&said.run).is_none()),
                // A new limit needs rows for the floor of each member and for one lease.
                None => ground.members.len() + 1,
            };
            // No room: the limit stays undivided, and the process tries again later.
            if rows + new_rows > ground.rows_max {
                continue;
            }
            rows += new_rows;
            let pool = self.pools.entry(line.scope.clone()).or_default();
            counted(&mut self.derived.rows, pool, |pool| pool.receive(&said.run, line));
            touched.insert(line.scope.clone());
        }
        // After its lines, which are about what the process had before.
        for overdue in inherited {
            // Without room for the heir, these leases end as those of other nodes do.
            if rows < ground.rows_max {
                touched.extend(self.end(overdue, Some(&said.run), &mut changed));
                rows = self.rows();
            }
        }
        if said.is_last {
            let heard =
                self.pools.iter_mut().map(|(scope, pool)| (scope, pool.hear_last(&said.run)));
            changed
                .extend(heard.filter(|(_, has_lease)| *has_lease).map(|(scope, _)| scope.clone()));
        }
        for scope in &touched {
            self.settle(scope, ground);
        }
        changed.append(&mut touched);
        self.derived.note(&said.run, said.serial, changed);
        Ok(())
    }

    /// Returns the division of one limit; None if no process named it.
    #[must_use]
    pub fn pool(&self, scope: &Scope) -> Option<&Pool> {
        self.pools.get(scope)
    }

    /// Returns the division of each limit.
    #[must_use]
    pub fn pools(&self) -> &BTreeMap<Scope, Pool> {
        &self.pools
    }

    /// Returns every process that may hold units, with its last statement.
    #[must_use]
    pub fn runs(&self) -> &BTreeMap<Run, RunRow> {
        &self.runs
    }

    /// Returns the limits whose division has changed since `seen` were the last statements; None if
    /// any may have.
    pub(crate) fn changed_since(&self, seen: &BTreeMap<Run, RunRow>) -> Option<Vec<&Scope>> {
        self.derived.since(seen)
    }

    /// Returns true if no statement has been applied.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.runs.is_empty() && self.pools.is_empty()
    }

    /// Returns the newest process of a node.
    #[must_use]
    pub fn newest(&self, node: &NodeName) -> Option<&Run> {
        self.runs_of(node).next_back().map(|(run, _)| run)
    }

    fn check(&self, said: &Statement) -> Result<(), StatementError> {
        if said.lines.len() > LINES_MAX || said.overdue.len() > OVERDUE_MAX {
            return Err(StatementError::TooLong);
        }
        let is_late = self.runs.get(&said.run).is_some_and(|row| row.serial >= said.serial);
        if is_late || self.newest(&said.run.node).is_some_and(|newest| *newest > said.run) {
            return Err(StatementError::Stale);
        }
        let is_new = !self.runs.contains_key(&said.run);
        let has_ended = |run: &Run, row: &RunRow| {
            let is_it = |overdue: &Overdue| {
                overdue.run == *run && overdue.serial == row.serial && overdue.kinds == [true; 3]
            };
            said.overdue.iter().any(is_it)
        };
        let left = self.runs_of(&said.run.node).filter(|(run, row)| !has_ended(run, row));
        if is_new && left.count() >= RUNS_EACH_MAX {
            return Err(StatementError::TooManyRuns);
        }
        Ok(())
    }

    /// Drops nodes that were removed. Returns the limits that changed.
    fn keep(&mut self, members: &BTreeSet<NodeName>) -> BTreeSet<Scope> {
        let mut changed = BTreeSet::new();
        if self.derived.members.as_ref() == Some(members) {
            return changed;
        }
        let before = self.runs.len();
        self.runs.retain(|run, _| members.contains(&run.node));
        let is_floor_of_others =
            |pool: &Pool| pool.floors().keys().any(|node| !members.contains(node));
        if self.runs.len() < before || self.pools.values().any(is_floor_of_others) {
            self.pools.values_mut().for_each(|pool| pool.keep(members));
            self.derived.rows = None;
            changed.extend(self.pools.keys().cloned());
        }
        self.derived.members = Some(members.clone());
        changed
    }

    /// Drops processes before `newest` that hold nothing, since their statements are stale now.
    fn forget_idle(&mut self, newest: &Run, changed: &mut BTreeSet<Scope>) {
        let earlier: Vec<Run> = self.runs_of(&newest.node).map(|(run, _)| run.clone()).collect();
        for run in earlier.into_iter().filter(|run| run != newest) {
            let holds = |pool: &Pool| pool.lease(&run).is_some_and(|lease| !lease.held.is_none());
            if !self.pools.values().any(holds) {
                self.forget(&run, changed);
                self.runs.remove(&run);
            }
        }
    }

    fn forget(&mut self, run: &Run, changed: &mut BTreeSet<Scope>) {
        for (scope, pool) in self.pools.iter_mut().filter(|(_, pool)| pool.lease(run).is_some()) {
            counted(&mut self.derived.rows, pool, |pool| pool.forget(run));
            changed.insert(scope.clone());
        }
    }

    /// Ends the leases named by `overdue`, or passes them on to `heir`. Returns the limits with
    /// units to give out; none if the process has made a statement since.
    fn end(
        &mut self,
        overdue: &Overdue,
        heir: Option<&Run>,
        changed: &mut BTreeSet<Scope>,
    ) -> Vec<Scope> {
        if self.runs.get(&overdue.run).is_none_or(|row| row.serial != overdue.serial) {
            return Vec::new();
        }
        let mut touched = Vec::new();
        let mut holds_more = false;
        for (scope, pool) in &mut self.pools {
            let has_changed = counted(&mut self.derived.rows, pool, |pool| match heir {
                Some(heir) => pool.inherit(&overdue.run, heir, overdue.kinds),
                None => pool.end(&overdue.run, overdue.kinds),
            });
            if has_changed {
                touched.push(scope.clone());
            }
            holds_more |= pool.lease(&overdue.run).is_some_and(|lease| !lease.held.is_none());
        }
        if !holds_more {
            self.forget(&overdue.run, changed);
            // The newest process stays, so that no statement of an earlier one is applied after it.
            if self.newest(&overdue.run.node) != Some(&overdue.run) {
                self.runs.remove(&overdue.run);
            }
        }
        touched
    }

    fn settle(&mut self, scope: &Scope, ground: &Ground<'_>) {
        let Some(pool) = self.pools.get_mut(scope) else { return };
        let terms = (ground.terms)(scope);
        let (is_gone, terms) = (terms.is_none(), terms.unwrap_or_default());
        debug_assert!(terms.floors.keys().all(|node| ground.members.contains(node)));
        counted(&mut self.derived.rows, pool, |pool| pool.settle(&terms));
        // The limit was removed. A node that does not know of that may go on using its units, and
        // these still count if the limit comes back.
        if is_gone && pool.taken().is_none() {
            counted(&mut self.derived.rows, pool, |pool| *pool = Pool::default());
            self.pools.remove(scope);
        }
    }

    /// Returns the number of floors and leases.
    fn rows(&mut self) -> usize {
        let counted =
            self.derived.rows.unwrap_or_else(|| self.pools.values().map(Pool::rows).sum());
        *self.derived.rows.insert(counted)
    }

    fn runs_of(&self, node: &NodeName) -> impl DoubleEndedIterator<Item = (&Run, &RunRow)> {
        let first = Run { node: node.clone(), incarnation: 0 };
        let last = Run { node: node.clone(), incarnation: u64::MAX };
        self.runs.range(first..=last)
    }
}

/// Changes a pool, and the number of all rows with it.
fn counted<T>(rows: &mut Option<usize>, pool: &mut Pool, change: impl FnOnce(&mut Pool) -> T) -> T {
    let before = pool.rows();
    let done = change(pool);
    if let Some(rows) = rows {
        *rows = (*rows + pool.rows()).saturating_sub(before);
    }
    done
}

impl std::fmt::Debug for Ground<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Ground").field("members", &self.members).finish_non_exhaustive()
    }
}

#[cfg(test)]
#[path = "shares_test.rs"]
mod tests;
