//! Who holds what of all limits, as all nodes agree.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use spillway_types::NodeName;

use crate::statement::{LINES_MAX, OVERDUE_MAX};
use crate::{Overdue, Pool, PoolTerms, Run, Scope, Statement};

/// Processes of one node that may hold something: the newest, and those before it whose leases have
/// not ended yet.
const RUNS_EACH_MAX: usize = 4;
/// Floors and leases of all limits together: a thousand limits on sixty nodes, or ten thousand on
/// six, each of which has one of both. They take about 12 MB of a snapshot.
pub const ROWS_MAX: usize = 131_072;
/// The same as long as a node of the cluster is older than wire version 4: all have to count alike.
pub const ROWS_MAX_OLD: usize = 65_536;

/// Who holds what. A function of the statements that were applied, in their order; no clock.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Shares {
    runs: BTreeMap<Run, RunRow>,
    pools: BTreeMap<Scope, Pool>,
}

/// What a process said last.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunRow {
    /// The serial of its last statement.
    pub serial: u64,
    /// How long its leases last from before that.
    pub length_ms: u32,
}

/// What a statement is judged by: records that all nodes agree on as well.
pub struct Ground<'a> {
    /// The nodes that are registered.
    pub members: &'a BTreeSet<NodeName>,
    /// How a limit should be divided; none if there is no such limit.
    pub terms: &'a dyn Fn(&Scope) -> Option<PoolTerms>,
    /// Floors and leases that there may be: [`ROWS_MAX`], or fewer for older nodes' sake. Limits beyond
    /// get none.
    pub rows_max: usize,
    /// Whether earlier processes that a statement says have ended make room for the one that says it;
    /// older nodes don't count so.
    pub ended_make_room: bool,
    /// Whether a process takes over what earlier processes of its node had; under older nodes that
    /// is free for all.
    pub has_heirs: bool,
}

/// A statement is not taken in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StatementFault {
    /// The process, or a later one of the same node, has spoken since.
    Stale,
    /// It speaks of more than one statement may.
    TooLong,
    /// Earlier processes of the node may still be using what they had.
    TooManyRuns,
}

impl Shares {
    /// Takes a statement in.
    ///
    /// # Errors
    /// If it may not be; nothing has changed then.
    pub fn apply(&mut self, said: &Statement, ground: &Ground<'_>) -> Result<(), StatementFault> {
        self.check(said, ground)?;
        self.keep(ground.members);
        let row = RunRow { serial: said.serial, length_ms: said.length_ms };
        if self.runs.insert(said.run.clone(), row).is_none() {
            self.forget_idle(&said.run);
        }
        let is_heir = |overdue: &&Overdue| {
            ground.has_heirs && overdue.run.node == said.run.node && overdue.run < said.run
        };
        let (inherited, ended): (Vec<_>, Vec<_>) = said.overdue.iter().partition(is_heir);
        let mut touched: BTreeSet<Scope> =
            ended.into_iter().flat_map(|overdue| self.end(overdue, None)).collect();
        let mut rows = self.rows();
        for line in &said.lines {
            let new_rows = match self.pools.get(&line.scope) {
                Some(pool) => usize::from(pool.lease(&said.run).is_none()),
                None => ground.members.len() + 1,
            };
            if rows + new_rows > ground.rows_max {
                continue;
            }
            rows += new_rows;
            self.pools.entry(line.scope.clone()).or_default().hear(&said.run, line);
            touched.insert(line.scope.clone());
        }
        // After its lines: they speak of what it had before.
        for overdue in inherited {
            // Where there is no place for them, they end as those of other nodes do.
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

    /// Who holds what of one limit.
    #[must_use]
    pub fn pool(&self, scope: &Scope) -> Option<&Pool> {
        self.pools.get(scope)
    }

    /// Who holds what of each limit.
    #[must_use]
    pub fn pools(&self) -> &BTreeMap<Scope, Pool> {
        &self.pools
    }

    /// Every process that may hold something, and what it said last.
    #[must_use]
    pub fn runs(&self) -> &BTreeMap<Run, RunRow> {
        &self.runs
    }

    /// Nobody has said anything yet.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.runs.is_empty() && self.pools.is_empty()
    }

    /// The newest process of a node.
    #[must_use]
    pub fn newest(&self, node: &NodeName) -> Option<&Run> {
        self.runs_of(node).next_back().map(|(run, _)| run)
    }

    fn check(&self, said: &Statement, ground: &Ground<'_>) -> Result<(), StatementFault> {
        if said.lines.len() > LINES_MAX || said.overdue.len() > OVERDUE_MAX {
            return Err(StatementFault::TooLong);
        }
        let is_late = self.runs.get(&said.run).is_some_and(|row| row.serial >= said.serial);
        if is_late || self.newest(&said.run.node).is_some_and(|newest| *newest > said.run) {
            return Err(StatementFault::Stale);
        }
        let is_new = !self.runs.contains_key(&said.run);
        let has_ended = |run: &Run, row: &RunRow| {
            let is_it = |overdue: &Overdue| {
                overdue.run == *run && overdue.serial == row.serial && overdue.kinds == [true; 3]
            };
            ground.ended_make_room && said.overdue.iter().any(is_it)
        };
        let left = self.runs_of(&said.run.node).filter(|(run, row)| !has_ended(run, row));
        if is_new && left.count() >= RUNS_EACH_MAX {
            return Err(StatementFault::TooManyRuns);
        }
        Ok(())
    }

    /// Forgets nodes that were removed.
    fn keep(&mut self, members: &BTreeSet<NodeName>) {
        let before = self.runs.len();
        self.runs.retain(|run, _| members.contains(&run.node));
        let is_floor_of_others =
            |pool: &Pool| pool.floors().keys().any(|node| !members.contains(node));
        if self.runs.len() < before || self.pools.values().any(is_floor_of_others) {
            self.pools.values_mut().for_each(|pool| pool.keep(members));
        }
    }

    /// Forgets processes before `newest` that have nothing: their last words are too late now.
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

    /// Ends leases that are as old as that, or passes them on to `heir`; the limits that it changed.
    fn end(&mut self, overdue: &Overdue, heir: Option<&Run>) -> Vec<Scope> {
        if self.runs.get(&overdue.run).is_none_or(|row| row.serial != overdue.serial) {
            return Vec::new();
        }
        let mut touched = Vec::new();
        let mut holds_more = false;
        for (scope, pool) in &mut self.pools {
            let has_changed = match heir {
                Some(heir) => pool.inherit((&overdue.run, heir), overdue.kinds),
                None => pool.end(&overdue.run, overdue.kinds),
            };
            if has_changed {
                touched.push(scope.clone());
            }
            holds_more |= pool.lease(&overdue.run).is_some_and(|lease| !lease.held.is_none());
        }
        if !holds_more {
            self.pools.values_mut().for_each(|pool| pool.forget(&overdue.run));
            // The newest stays, so that nothing an earlier one said is taken in after it.
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
            // The limit was removed. Who has not heard of that may use what it had, and if the limit
            // comes back, that counts.
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
