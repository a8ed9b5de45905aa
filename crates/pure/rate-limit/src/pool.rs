//! Division of one limit among nodes and processes, as all nodes agree.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use spillway_types::NodeName;

use crate::fair::{even, fair};
use crate::{LimitKind, RequestWindow, Run, ShareLine, Units};

/// Terms by which a limit is divided, from its record and the registered nodes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PoolTerms {
    /// The whole limit by kind, in the order of [`LimitKind::ALL`]; None for kinds without a limit.
    pub whole: [Option<u64>; 3],
    /// Floors that nodes should have permanently, see [`crate::floors`].
    pub floors: BTreeMap<NodeName, Units>,
    /// Time over which requests are counted.
    pub requests: RequestWindow,
    /// Number of nodes that may want a part. Units that no process needs are divided by this
    /// number: the parts of nodes without a statement stay free for them. Zero divides these units
    /// among the processes that made a statement.
    pub nodes: usize,
}

/// Division of one limit among nodes and processes.
///
/// A number goes down only by its holder's own statement, by the end of its lease, or when its node
/// is removed. A number goes up only as far as all numbers together leave room. That is the whole
/// proof that the sum stays within the limit, even for nodes that do not know of the last change.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pool {
    /// The whole limit when it was divided last.
    whole: Units,
    /// Units that each node may be using permanently.
    floors: BTreeMap<NodeName, Units>,
    /// Units that each process may be using until its lease ends.
    leases: BTreeMap<Run, PoolLease>,
}

/// Units of a pool that a process holds and needs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PoolLease {
    /// Units that the process may be using.
    pub held: Units,
    /// Units that the process needs.
    pub need: Units,
    /// True if the process announced its end, or was silent for too long. It gets nothing more
    /// until its next statement.
    pub is_ending: bool,
}

impl Pool {
    /// Returns the whole limit when it was divided last.
    #[must_use]
    pub fn whole(&self) -> Units {
        self.whole
    }

    /// Returns the units that a node may use permanently.
    #[must_use]
    pub fn floor(&self, node: &NodeName) -> Units {
        self.floors.get(node).copied().unwrap_or_default()
    }

    /// Returns the lease of a process; None if the process never named this limit.
    #[must_use]
    pub fn lease(&self, run: &Run) -> Option<&PoolLease> {
        self.leases.get(run)
    }

    /// Returns the units that each node may use permanently.
    #[must_use]
    pub fn floors(&self) -> &BTreeMap<NodeName, Units> {
        &self.floors
    }

    /// Returns the lease of each process.
    #[must_use]
    pub fn leases(&self) -> &BTreeMap<Run, PoolLease> {
        &self.leases
    }

    /// Returns all units that may be in use. A sum beyond `u64::MAX` stays there: rows of a
    /// snapshot that were never given out must not look like room.
    #[must_use]
    pub fn taken(&self) -> Units {
        let floors = self.floors.values();
        let held = floors.chain(self.leases.values().map(|lease| &lease.held));
        let add =
            |sum: Units, units: &Units| Units::each(|kind| sum[kind].saturating_add(units[kind]));
        held.fold(Units::NONE, add)
    }

    pub(crate) fn rows(&self) -> usize {
        self.floors.len() + self.leases.len()
    }

    /// Applies a process's own line of a statement. No number goes up by it.
    pub(crate) fn receive(&mut self, run: &Run, line: &ShareLine) {
        if let Some(floor) = self.floors.get_mut(&run.node) {
            *floor = Units::each(|kind| floor[kind].min(line.floor[kind]));
        }
        let lease = self.leases.entry(run.clone()).or_default();
        lease.held = Units::each(|kind| lease.held[kind].min(line.lease[kind]));
        lease.need = line.need;
        lease.is_ending = false;
    }

    /// Marks the lease of a process that announced its end. Returns false if it has none.
    pub(crate) fn hear_last(&mut self, run: &Run) -> bool {
        let Some(lease) = self.leases.get_mut(run) else { return false };
        lease.is_ending = true;
        lease.need = Units::NONE;
        true
    }

    /// Ends the lease of a process for these kinds. Returns true if that changes anything.
    pub(crate) fn end(&mut self, run: &Run, kinds: [bool; 3]) -> bool {
        let Some(lease) = self.leases.get_mut(run) else { return false };
        let before = *lease;
        for kind in LimitKind::ALL.into_iter().filter(|kind| kinds[*kind as usize]) {
            lease.held[kind] = 0;
        }
        lease.need = Units::NONE;
        lease.is_ending = true;
        before != *lease
    }

    /// Passes the units that a process holds of these kinds on to a later process of the same node.
    /// Returns true if that changes anything.
    pub(crate) fn inherit(&mut self, from: &Run, to: &Run, kinds: [bool; 3]) -> bool {
        let Some(before) = self.leases.get(from).copied() else { return false };
        // Taken from the earlier process before the later one has it: no unit is held twice.
        if !self.end(from, kinds) {
            return false;
        }
        let heir = self.leases.entry(to.clone()).or_default();
        for kind in LimitKind::ALL.into_iter().filter(|kind| kinds[*kind as usize]) {
            heir.held[kind] = heir.held[kind].saturating_add(before.held[kind]);
        }
        true
    }

    /// Drops the lease of a process that holds nothing.
    pub(crate) fn forget(&mut self, run: &Run) {
        self.leases.remove(run);
    }

    /// Drops nodes that were removed. The operator who removes a node vouches that it has stopped.
    pub(crate) fn keep(&mut self, members: &BTreeSet<NodeName>) {
        self.floors.retain(|node, _| members.contains(node));
        self.leases.retain(|run, _| members.contains(&run.node));
    }

    /// Gives out free units: first floors, then needs, then the rest to all processes.
    pub(crate) fn settle(&mut self, terms: &PoolTerms) {
        self.whole = Units(terms.whole.map(|whole| whole.unwrap_or(0)));
        for node in terms.floors.keys() {
            self.floors.entry(node.clone()).or_default();
        }
        let taken = self.taken();
        for kind in LimitKind::ALL {
            let mut free = self.whole[kind].saturating_sub(taken[kind]);
            if free == 0 {
                // Most limits are of one kind, so there is nothing to give out of the others.
                continue;
            }
            for (node, should) in &terms.floors {
                let floor = self.floors.entry(node.clone()).or_default();
                let up = should[kind].saturating_sub(floor[kind]).min(free);
                floor[kind] += up;
                free -= up;
            }
            let targets = self.targets(terms, kind);
            for of in [needed, spare] {
                let lacking: Vec<u64> = self
                    .leases
                    .values()
                    .zip(&targets)
                    .map(|(lease, target)| of(lease, *target, kind))
                    .collect();
                for (lease, up) in self.leases.values_mut().zip(fair(free, &lacking)) {
                    lease.held[kind] += up;
                    free -= up;
                }
            }
        }
    }

    /// Returns true if these terms leave nothing to give out.
    pub(crate) fn is_settled(&self, terms: &PoolTerms) -> bool {
        let mut settled = self.clone();
        settled.settle(terms);
        settled == *self
    }

    /// Returns the units that each process should have in the end, in the order of the leases: its
    /// need as far as that is fair, and an even part of the units that no process needs.
    pub(crate) fn targets(&self, terms: &PoolTerms, kind: LimitKind) -> Vec<u64> {
        self.targets_if(terms, kind, |_, lease| lease.need[kind])
    }

    /// Returns the units that a process should have in the end if it needs so many.
    pub(crate) fn target(&self, terms: &PoolTerms, kind: LimitKind, run: &Run, need: u64) -> u64 {
        let need_of = |other: &Run, lease: &PoolLease| {
            if other == run { need } else { lease.need[kind] }
        };
        let targets = self.targets_if(terms, kind, need_of);
        let mut parts = self.leases.keys().zip(targets);
        parts.find(|(other, _)| *other == run).map_or(0, |(_, part)| part)
    }

    fn targets_if(
        &self,
        terms: &PoolTerms,
        kind: LimitKind,
        need_of: impl Fn(&Run, &PoolLease) -> u64,
    ) -> Vec<u64> {
        let ending = self.leases.values().filter(|lease| lease.is_ending);
        let kept = ending.map(|lease| lease.held[kind]).fold(0, u64::saturating_add);
        let surplus = self.surplus(terms, kind).saturating_sub(kept);
        let going_on = self.leases.iter().filter(|(_, lease)| !lease.is_ending);
        let needs: Vec<u64> = going_on.map(|(run, lease)| need_of(run, lease)).collect();
        let parts = fair(surplus, &needs);
        let more = even(surplus - parts.iter().sum::<u64>(), parts.len().max(terms.nodes));
        let mut parts = parts.into_iter().enumerate().map(|(place, part)| part + more(place));
        let target = |lease: &PoolLease| match lease.is_ending {
            true => 0,
            false => parts.next().unwrap_or(0),
        };
        self.leases.values().map(target).collect()
    }

    /// Returns the units that may be leased: all but the floors, also those that are still to be
    /// raised.
    pub(crate) fn surplus(&self, terms: &PoolTerms, kind: LimitKind) -> u64 {
        let owned = |node: &NodeName| terms.floors.get(node).map_or(0, |floor| floor[kind]);
        let floors = self.floors.iter().map(|(node, floor)| floor[kind].max(owned(node)));
        let whole = terms.whole[kind as usize].unwrap_or(0);
        whole.saturating_sub(floors.fold(0, u64::saturating_add))
    }

    /// Returns the units that a process would hold soon if it needed all there is: those it holds,
    /// those that are free, and those that others hold and don't need, as far as that is fair.
    pub(crate) fn reach(&self, run: &Run, terms: &PoolTerms, kind: LimitKind) -> u64 {
        let Some(own) = self.leases.get(run) else { return 0 };
        let others =
            || self.leases.iter().filter(|(other, lease)| *other != run && !lease.is_ending);
        let idle = others().map(|(_, lease)| lease.held[kind].saturating_sub(lease.need[kind]));
        let free = terms.whole[kind as usize].unwrap_or(0).saturating_sub(self.taken()[kind]);
        let soon = idle.fold(own.held[kind].saturating_add(free), u64::saturating_add);
        let fair = self.target(terms, kind, run, u64::MAX);
        self.floor(&run.node)[kind].saturating_add(own.held[kind].max(soon.min(fair)))
    }

    /// Returns true if a process waits for others to give back units: for a floor, for its need, or
    /// for half of an even part. Less is not worth an entry of the log.
    pub(crate) fn is_short(&self, terms: &PoolTerms, kind: LimitKind, targets: &[u64]) -> bool {
        let lacks_floor =
            terms.floors.iter().any(|(node, should)| self.floor(node)[kind] < should[kind]);
        let lacks = |(lease, target): (&PoolLease, &u64)| {
            lease.held[kind] < lease.need[kind].min(*target)
                || lease.held[kind] < target.div_ceil(2)
        };
        lacks_floor
            || self.taken()[kind] > terms.whole[kind as usize].unwrap_or(0)
            || self.leases.values().zip(targets).any(lacks)
    }
}

fn needed(lease: &PoolLease, target: u64, kind: LimitKind) -> u64 {
    lease.need[kind].min(target).saturating_sub(lease.held[kind])
}

fn spare(lease: &PoolLease, target: u64, kind: LimitKind) -> u64 {
    target.saturating_sub(lease.held[kind])
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Builds a pool with units that were never given out, as a damaged snapshot may have.
    fn beyond_counting() -> Pool {
        let most = Units([u64::MAX; 3]);
        let lease = |is_ending| PoolLease { held: most, need: most, is_ending };
        let run = |node: &str| Run { node: node.into(), incarnation: 1 };
        Pool {
            whole: most,
            floors: [("a".into(), most)].into(),
            leases: [(run("a"), lease(false)), (run("b"), lease(true))].into(),
        }
    }

    #[test]
    fn more_than_can_be_counted_leaves_no_room() {
        let mut pool = beyond_counting();
        assert_eq!(pool.taken(), Units([u64::MAX; 3]));
        let terms = PoolTerms { whole: [Some(10); 3], ..PoolTerms::default() };
        let newcomer = Run { node: "c".into(), incarnation: 1 };
        let line = ShareLine {
            scope: crate::Scope::Global,
            floor: Units::NONE,
            lease: Units::NONE,
            need: Units([5; 3]),
        };
        pool.receive(&newcomer, &line);
        pool.settle(&terms);
        assert_eq!(pool.lease(&newcomer).map(|lease| lease.held), Some(Units::NONE));
        assert_eq!(pool.targets(&terms, LimitKind::TokenRate).iter().sum::<u64>(), 0);
    }
}
