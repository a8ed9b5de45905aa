//! Division of all limits, as all nodes agree.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use spillway_types::NodeName;

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
    /// Terms of a limit; None if there is no such limit.
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
        self.keep(ground.members);
        let row = RunRow { serial: said.serial, length_ms: said.length_ms };
        if self.runs.insert(said.run.clone(), row).is_none() {
            self.forget_idle(&said.run);
        }
        // A process takes over what earlier processes of its node had.
        let is_heir =
            |overdue: &&Overdue| overdue.run.node == said.run.node && overdue.run < said.run;
        let (inherited, ended): (Vec<_>, Vec<_>) = said.overdue.iter().partition(is_heir);
        let mut touched: BTreeSet<Scope> =
            ended.into_iter().flat_map(|overdue| self.end(overdue, None)).collect();
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
            self.pools.entry(line.scope.clone()).or_default().hear(&said.run, line);
            touched.insert(line.scope.clone());
        }
        // After its lines, which are about what the process had before.
        for overdue in inherited {
            // Without room for the heir, these leases end as those of other nodes do.
            if rows < ground.rows_max {
                touched.extend(self.end(overdue, Some(&said.run)));
                rows = self.rows();
            }
        }
        if said.is_last {
            self.pools.values_mut().for_each(|pool| pool.hear_last(&said.run));
        }
        for scope in touched {
            self.settle(&scope, ground);
        }
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

    /// Drops nodes that were removed.
    fn keep(&mut self, members: &BTreeSet<NodeName>) {
        let before = self.runs.len();
        self.runs.retain(|run, _| members.contains(&run.node));
        let is_floor_of_others =
            |pool: &Pool| pool.floors().keys().any(|node| !members.contains(node));
        if self.runs.len() < before || self.pools.values().any(is_floor_of_others) {
            self.pools.values_mut().for_each(|pool| pool.keep(members));
        }
    }

    /// Drops processes before `newest` that hold nothing, since their statements are stale now.
    fn forget_idle(&mut self, newest: &Run) {
        let earlier: Vec<Run> = self.runs_of(&newest.node).map(|(run, _)| run.clone()).collect();
        for run in earlier.into_iter().filter(|run| run != newest) {
            let holds = |pool: &Pool| pool.lease(&run).is_some_and(|lease| !lease.held.is_none());
            if !self.pools.values().any(holds) {
                self.pools.values_mut().for_each(|pool| pool.forget(&run));
                self.runs.remove(&run);
            }
        }
    }

    /// Ends the leases named by `overdue`, or passes them on to `heir`. Returns the limits that
    /// changed; none if the process has made a statement since.
    fn end(&mut self, overdue: &Overdue, heir: Option<&Run>) -> Vec<Scope> {
        if self.runs.get(&overdue.run).is_none_or(|row| row.serial != overdue.serial) {
            return Vec::new();
        }
        let mut touched = Vec::new();
        let mut holds_more = false;
        for (scope, pool) in &mut self.pools {
            let has_changed = match heir {
                Some(heir) => pool.inherit(&overdue.run, heir, overdue.kinds),
                None => pool.end(&overdue.run, overdue.kinds),
            };
            if has_changed {
                touched.push(scope.clone());
            }
            holds_more |= pool.lease(&overdue.run).is_some_and(|lease| !lease.held.is_none());
        }
        if !holds_more {
            self.pools.values_mut().for_each(|pool| pool.forget(&overdue.run));
            // The newest process stays, so that no statement of an earlier one is applied after it.
            if self.newest(&overdue.run.node) != Some(&overdue.run) {
                self.runs.remove(&overdue.run);
            }
        }
        touched
    }

    fn settle(&mut self, scope: &Scope, ground: &Ground<'_>) {
        let Some(pool) = self.pools.get_mut(scope) else { return };
        match (ground.terms)(scope) {
            Some(terms) => pool.settle(&terms),
            // The limit was removed. A node that has not heard of that may go on using its units,
            // and these still count if the limit comes back.
            None => {
                pool.settle(&PoolTerms::default());
                if pool.taken().is_none() {
                    self.pools.remove(scope);
                }
            }
        }
    }

    fn rows(&self) -> usize {
        self.pools.values().map(Pool::rows).sum()
    }

    fn runs_of(&self, node: &NodeName) -> impl DoubleEndedIterator<Item = (&Run, &RunRow)> {
        let first = Run { node: node.clone(), incarnation: 0 };
        let last = Run { node: node.clone(), incarnation: u64::MAX };
        self.runs.range(first..=last)
    }
}

impl std::fmt::Debug for Ground<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Ground").field("members", &self.members).finish_non_exhaustive()
    }
}

#[cfg(test)]
#[path = "shares_test.rs"]
mod tests;
