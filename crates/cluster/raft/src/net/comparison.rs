//! Knowledge that this node has gained by comparing itself with other nodes.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use spillway_types::NodeId;

use crate::ids::Member;
use crate::raft::{LogId, Members};
use crate::rules::agreement::OtherDigests;
use crate::rules::lineage::{Disks, SavedDisks};
use crate::trouble::Trouble;
use crate::wire::DiskCount;

/// Time for which this node reports a second process of its own name.
pub(crate) const DOUBLE_TOLD: Duration = Duration::from_secs(300);
/// Conflicts below what a follower has confirmed that make a loss: a single one may be an answer that
/// was late.
const CONFLICTS: u32 = 2;
/// Shortest time between two log lines about one node's disk.
const LOG_PERIOD: Duration = Duration::from_secs(10);
/// Most commits that a disk is believed to lack.
const COMMITS_LOST_MAX: u64 = 1 << 32;
/// Time for which a leader's contradiction is reported after the last one.
const CONTRADICTED: Duration = Duration::from_secs(30);
/// Time after which conflicts that led to nothing are forgotten.
const SUSPECTED: Duration = Duration::from_secs(10);

/// Knowledge that this node has gained by comparing itself with other nodes.
#[derive(Debug)]
pub(crate) struct Comparison {
    process: u64,
    /// Commits of the disk when this process started.
    pub(crate) began: u64,
    compared: Mutex<Compared>,
}

#[derive(Debug, Default)]
pub(crate) struct Compared {
    pub(crate) disks: Disks,
    pub(crate) digests: OtherDigests,
    /// Nodes that have reported what they know of this node's disk, or can't.
    pub(crate) answered: BTreeSet<NodeId>,
    /// Count that another process of this node's disk has reported; 0 if this one is not behind it.
    pub(crate) past: u64,
    /// True once a leader that a quorum has confirmed since the start has brought this node up to date,
    /// so that nothing depends on what its disk once had. True from the start for an empty log.
    is_settled: bool,
    /// Index of a state that is not the cluster's.
    pub(crate) apart: Option<u64>,
    /// The count with which this node has caught up.
    pub(crate) cleared: u64,
    /// Time at which a leader last sent other entries in the place of some that are committed here.
    pub(crate) contradicted: Option<Duration>,
    /// Time at which another node saw a second process of this node's name.
    pub(crate) doubled: Option<Duration>,
    /// Nodes whose state differs from this node's.
    pub(crate) differ: BTreeSet<NodeId>,
    /// Followers of this leader that answer below what they had confirmed.
    lost: BTreeMap<NodeId, LostEntries>,
    /// Time of the last log line about each node's disk.
    logged: BTreeMap<NodeId, Duration>,
    pub(crate) is_changed: bool,
    pub(crate) is_urgent: bool,
}

/// A follower that lacks what it had confirmed.
#[derive(Clone, Copy, Debug)]
struct LostEntries {
    /// Index of the last entry that it had.
    had: u64,
    /// Conflicts below that entry.
    conflicts: u32,
    /// Time of the last one.
    at: Duration,
    /// True if openraft was allowed to go back.
    is_allowed: bool,
    /// True once openraft has gone back.
    is_below: bool,
}

impl Compared {
    /// Returns true if this node's disk is from the past, and no leader has brought it up to date.
    fn is_past(&self) -> bool {
        self.past > 0 && !self.is_settled
    }

    fn may_vote(&self) -> bool {
        !self.is_past() && self.apart.is_none()
    }

    /// Returns true, and notes it, if there was no log line about a node's disk for a while. Only
    /// members are asked about, so the table is as small as the cluster.
    pub(crate) fn may_log(&mut self, id: NodeId, now: Duration) -> bool {
        let last = self.logged.get(&id);
        let may = last.is_none_or(|at| now.saturating_sub(*at) >= LOG_PERIOD);
        if may {
            self.logged.insert(id, now);
        }
        may
    }

    /// Notes that, according to another node, an earlier process of this node's disk has reported
    /// the count `ahead`. Returns true if this node did not know that it lacks something.
    pub(crate) fn tell_past(&mut self, ahead: u64, serial: u64) -> bool {
        // No disk lacks so many commits. A node that claims this is trying to use up the numbers.
        if ahead <= self.past.max(self.cleared) || ahead > serial.saturating_add(COMMITS_LOST_MAX) {
            return false;
        }
        self.past = ahead;
        self.is_urgent = true;
        !self.is_settled
    }
}

impl LostEntries {
    fn is_sure(&self) -> bool {
        self.conflicts >= CONFLICTS
    }
}

impl Comparison {
    /// Returns this process's report about its disk, whose count of commits is `serial` now.
    pub(crate) fn count(&self, serial: u64) -> DiskCount {
        let (process, began) = (self.process, self.began);
        DiskCount { process, began, serial, cleared: self.compared().cleared }
    }

    /// Begins with what the last process has kept. An empty log has promised nothing.
    pub(crate) fn new(began: u64, is_blank: bool, saved: &SavedDisks) -> Self {
        let disks = Disks::new(&saved.rows);
        let (past, is_settled) = (saved.past, is_blank);
        let compared = Compared { disks, past, is_settled, ..Compared::default() };
        // 0 means no process.
        let process = fastrand::u64(1..);
        Self { process, began, compared: Mutex::new(compared) }
    }

    /// Returns true once nothing depends on what the disk once had.
    pub(crate) fn is_settled(&self) -> bool {
        self.compared().is_settled
    }

    /// A leader that a quorum has confirmed since the start has brought this node up to date.
    pub(crate) fn settle(&self) {
        self.compared().is_settled = true;
    }

    /// Returns the count that an earlier process of this node's disk has reported, if that forbids
    /// the node to vote.
    pub(crate) fn forbidding_past(&self) -> Option<u64> {
        let compared = self.compared();
        compared.is_past().then_some(compared.past)
    }

    /// Returns the count from which the disk has to go on, now that this node is up to date again;
    /// `None` if it need not.
    pub(crate) fn to_raise(&self) -> Option<u64> {
        let compared = self.compared();
        (compared.is_settled && compared.past > 0).then_some(compared.past)
    }

    /// The disk goes on from that count.
    pub(crate) fn raised(&self, past: u64) {
        let mut compared = self.compared();
        compared.cleared = compared.cleared.max(past);
        if compared.past <= past {
            compared.past = 0;
        }
        compared.is_urgent = true;
    }

    /// Returns true if a node has reported what it knows of this node's disk, or nothing depends on
    /// it.
    pub(crate) fn is_known_to(&self, id: NodeId) -> bool {
        let compared = self.compared();
        compared.is_settled || compared.answered.contains(&id)
    }

    /// Returns true if no report of other nodes forbids this one to vote.
    pub(crate) fn may_vote(&self) -> bool {
        self.compared().may_vote()
    }

    /// Returns true if this node may start an election: most voters of each set have reported what
    /// they know of its disk, and nothing forbids it.
    pub(crate) fn may_stand(&self, me: NodeId, sets: &[BTreeSet<NodeId>]) -> bool {
        let compared = self.compared();
        let is_alone = sets.iter().all(|set| set.len() == 1);
        let knows = |id: &&NodeId| **id == me || compared.answered.contains(id);
        let is_known = |set: &BTreeSet<NodeId>| set.iter().filter(knows).count() > set.len() / 2;
        let may_ask = compared.is_settled || sets.iter().all(is_known);
        is_alone || compared.may_vote() && may_ask
    }

    /// Returns true if a conflict of a follower's log at `previous` is below the entry `matched` that
    /// it had confirmed, and openraft does not know yet that it has to go back.
    pub(crate) fn is_held_back(
        &self,
        id: NodeId,
        previous: LogId,
        matched: LogId,
        now: Duration,
    ) -> bool {
        if previous.index > matched.index {
            return false;
        }
        let mut compared = self.compared();
        let had = matched.index;
        let none = LostEntries { had, conflicts: 0, at: now, is_allowed: false, is_below: false };
        let lost = compared.lost.entry(id).or_insert(none);
        (lost.conflicts, lost.at) = (lost.conflicts.saturating_add(1), now);
        // Once only: the next such conflict would be another loss.
        !std::mem::take(&mut lost.is_allowed)
    }

    /// A leader has sent other entries in the place of some that are committed here. Returns true if it
    /// had not lately.
    pub(crate) fn contradict(&self, now: Duration) -> bool {
        let before = self.compared().contradicted.replace(now);
        before.is_none_or(|at| now.saturating_sub(at) > CONTRADICTED)
    }

    /// Returns the followers that lost entries and whose step back openraft has yet to allow.
    pub(crate) fn to_allow(&self) -> Vec<NodeId> {
        let compared = self.compared();
        let waits = |lost: &LostEntries| lost.is_sure() && !lost.is_allowed && !lost.is_below;
        compared.lost.iter().filter(|(_, lost)| waits(lost)).map(|(id, _)| *id).collect()
    }

    /// Notes that openraft knows of a loss.
    pub(crate) fn allow(&self, id: NodeId) {
        if let Some(lost) = self.compared().lost.get_mut(&id) {
            lost.is_allowed = true;
        }
    }

    /// Forgets followers that have again what they had, and all of them where this node leads no
    /// more. `matched` is how far each follower is.
    pub(crate) fn keep_lost(
        &self,
        matched: Option<&BTreeMap<NodeId, Option<LogId>>>,
        now: Duration,
    ) {
        let mut compared = self.compared();
        let Some(matched) = matched else { return compared.lost.clear() };
        compared.lost.retain(|id, lost| {
            let is_below = matched.get(id).copied().flatten().is_none_or(|at| at.index < lost.had);
            lost.is_below |= is_below;
            is_below || !lost.is_below && now.saturating_sub(lost.at) < SUSPECTED
        });
    }

    /// Returns what a person has to know of the disks and the states of nodes.
    pub(crate) fn troubles(&self, me: NodeId, members: &Members, now: Duration) -> Vec<Trouble> {
        let compared = self.compared();
        let mut troubles = Vec::new();
        let is_recent = |at: Duration| now.saturating_sub(at) < CONTRADICTED;
        for (id, Member { name: node, disk, .. }) in members.nodes() {
            let (node, is_own) = (node.clone(), *id == me);
            let is_past = match is_own {
                true => compared.is_past(),
                false => {
                    let lost = compared.lost.get(id).is_some_and(LostEntries::is_sure);
                    lost || compared.disks.ahead(*disk).is_some()
                }
            };
            let is_double = match is_own {
                true => compared.doubled.is_some_and(|at| now.saturating_sub(at) < DOUBLE_TOLD),
                false => compared.disks.is_double(*disk, now),
            };
            if is_past {
                troubles.push(Trouble::DiskFromPast { node: node.clone(), is_own });
            }
            if is_double {
                troubles.push(Trouble::TwoProcesses { node: node.clone() });
            }
            let is_refused = is_own && compared.contradicted.is_some_and(is_recent);
            if compared.differ.contains(id) || is_refused {
                troubles.push(Trouble::StateDiffers { node, is_own });
            }
        }
        troubles
    }

    /// The number of this process.
    #[cfg(test)]
    pub(crate) fn process(&self) -> u64 {
        self.process
    }

    /// Returns true if this node knows of the other one's present process, and that it has written.
    #[cfg(test)]
    pub(crate) fn knows(&self, other: &Self) -> bool {
        self.compared().disks.is_written(other.process, other.began)
    }

    /// Returns true if a node has reported what it knows of this one's disk.
    #[cfg(test)]
    pub(crate) fn has_answered(&self, id: NodeId) -> bool {
        self.compared().answered.contains(&id)
    }

    /// Returns true if this process has caught up with another one.
    #[cfg(test)]
    pub(crate) fn is_cleared(&self) -> bool {
        self.compared().cleared > 0
    }

    /// Returns true if nothing waits to be written at once.
    #[cfg(test)]
    pub(crate) fn is_kept(&self) -> bool {
        !self.compared().is_urgent
    }

    pub(crate) fn saved(&self) -> SavedDisks {
        let compared = self.compared();
        SavedDisks { rows: compared.disks.rows(), past: compared.past }
    }

    pub(crate) fn compared(&self) -> MutexGuard<'_, Compared> {
        self.compared.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
