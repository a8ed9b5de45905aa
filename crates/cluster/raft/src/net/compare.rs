//! Comparison of nodes: each asks each other one every second what it knows of the asker's disk, and
//! which digests its state has.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use openraft::async_runtime::watch::WatchReceiver;
use spillway_files::save;
use spillway_types::{DiskId, NodeId};
use tokio::task::spawn_blocking;
use tokio::time::{Instant, sleep};

use super::comparison::{Compared, DOUBLE_TOLD};
use super::context::{Context, NetError};
use crate::disk::DiskError;
use crate::ids::Member;
use crate::machine::Machine;
use crate::rules::agreement::{Agreement, Electorate};
use crate::rules::lineage::DiskNews;
use crate::state_machine::{Applied, Raft};
use crate::wire::{Answer, Call, CallError, Report};

/// Time between two comparisons with one node.
const PERIOD: Duration = Duration::from_secs(1);
/// Pause between two searches for nodes to compare with.
const LOOK: Duration = Duration::from_millis(100);
/// Time after which reports of other nodes about their disks are written; new processes and disks
/// from the past are written at once.
const SAVE_PERIOD: Duration = Duration::from_secs(5);

impl Context {
    /// Returns the report for another node about its disk.
    pub(crate) fn report<M: Machine>(
        &self,
        applied: &Applied<M>,
        id: NodeId,
        disk: DiskId,
    ) -> Report {
        let others = self.comparison.compared().digests.newest(id);
        let digests = applied.digests(|own| own.to_report(others));
        let count = self.comparison.count(self.log.serial());
        let compared = self.comparison.compared();
        Report {
            count,
            digests,
            ahead: compared.disks.ahead(disk),
            is_double: compared.disks.is_double(disk, self.now()),
        }
    }

    /// Handles a report of another member.
    pub(crate) fn receive<M: Machine>(
        &self,
        applied: &Applied<M>,
        id: NodeId,
        member: &Member,
        report: &Report,
    ) {
        let now = self.now();
        // A node without a vote must not keep others from voting, whatever it reports of their
        // disks.
        let votes = self.votes(id);
        let mut compared = self.comparison.compared();
        // Before a new disk is seen, so that there is room for it.
        if let Some((members, _)) = self.guard.members() {
            let disks = members.nodes().map(|(_, member)| member.disk).collect();
            compared.disks.forget(&disks);
        }
        let node = &member.name;
        let news = compared.disks.see(member.disk, report.count, now);
        compared.answered.insert(id);
        compared.is_changed = true;
        compared.is_urgent |= votes && news.is_some();
        match news.filter(|_| compared.may_log(id, now)) {
            Some(DiskNews::Past(serial)) => tracing::error!(
                %node, began = report.count.began, told = serial,
                "a node has started on a disk from the past: it lacks what it had confirmed"
            ),
            Some(DiskNews::Double) => tracing::error!(
                %node, "two processes speak as this node: one of them runs on a copy of its folder"
            ),
            Some(DiskNews::Started | DiskNews::Written) | None => {}
        }
        if votes
            && report.is_double
            && compared.doubled.is_none_or(|at| now.saturating_sub(at) > DOUBLE_TOLD / 2)
        {
            tracing::error!(
                told_by = %node,
                "another process speaks as this node: stop the one that runs on a copy of the folder"
            );
            compared.doubled = Some(now);
        }
        let serial = self.log.serial();
        if votes && report.ahead.is_some_and(|ahead| compared.tell_past(ahead, serial)) {
            tracing::error!(
                told_by = %node, had = report.ahead, began = self.comparison.began,
                "the disk of this node is from the past: this node does not vote until a leader has \
                 brought it up to date"
            );
        }
        applied.digests(|own| compared.digests.receive(own, id, &report.digests));
        self.judge(applied, &mut compared);
    }

    fn votes(&self, id: NodeId) -> bool {
        let members = self.guard.members();
        members.is_some_and(|(members, _)| members.voter_ids().any(|voter| voter == id))
    }

    /// Compares this node with another one.
    pub(crate) async fn compare<M: Machine>(
        &self,
        applied: &Applied<M>,
        id: NodeId,
        member: &Member,
    ) {
        let call = Call::Compare(self.report(applied, id, member.disk));
        let limit = 2 * self.timing().heartbeat;
        match self.call((id, member), &call, limit).await {
            Ok(Answer::Compared(report)) => {
                self.receive(applied, id, member, &report);
            }
            // It does not know this node as a member yet, and so nothing of its disk.
            Ok(Answer::Refused(CallError::NotNow)) => {
                self.comparison.compared().answered.insert(id);
            }
            // A program of an earlier version does not know the question. It answers another one, which
            // a node whose log is closed does not.
            Err(NetError::Unanswered) if self.hello(&member.name, limit).await.is_ok() => {
                self.comparison.compared().answered.insert(id);
            }
            other => {
                tracing::debug!(peer = %member.name, ?other, "its state could not be compared");
            }
        }
    }

    /// Judges this node's state by the reports of the others.
    fn judge<M: Machine>(&self, applied: &Applied<M>, compared: &mut Compared) {
        let Some((members, leader)) = self.guard.members() else { return };
        let voters = members.voter_ids().collect();
        let of = Electorate { me: self.node, voters: &voters, leader };
        compared.digests.keep(&members.nodes().map(|(id, _)| *id).collect());
        let differ = match applied.digests(|own| compared.digests.judge(own, of)) {
            Agreement::Same => BTreeSet::new(),
            Agreement::Others(others) => others,
            Agreement::Apart { index } => {
                compared.apart = compared.apart.or(Some(index));
                [self.node].into()
            }
        };
        for id in differ.difference(&compared.differ).filter(|id| **id != self.node) {
            let node = members.get_node(id).map(|member| member.name.clone());
            tracing::error!(?node, "its state differs from this node's at the same entry");
        }
        compared.differ = differ;
    }

    /// Returns the reason for which the log has to stop; `None` if there is none.
    fn reason_to_stop(&self) -> Option<DiskError> {
        let index = self.comparison.compared().apart?;
        (!self.is_stopped()).then_some(DiskError::Apart { index })
    }

    async fn save(&self, file: &Path) {
        let (file, kept) = (file.to_owned(), self.comparison.saved());
        let saving = spawn_blocking(move || save(&file, &kept));
        if let Ok(Err(error)) = saving.await {
            tracing::warn!(%error, "the state of other nodes' disks can't be saved");
        }
    }

    /// Returns true if what is known of disks has to be written.
    fn is_to_save(&self, written: Instant) -> bool {
        let mut compared = self.comparison.compared();
        let is_due = compared.is_urgent || compared.is_changed && written.elapsed() >= SAVE_PERIOD;
        if is_due {
            (compared.is_urgent, compared.is_changed) = (false, false);
        }
        is_due
    }
}

/// Compares this node with all members, for as long as it is polled. Keeps what it learns in `file`.
pub(crate) async fn compare_all<M: Machine>(
    context: Arc<Context>,
    raft: Raft<M>,
    applied: Arc<Applied<M>>,
    file: PathBuf,
) {
    if !context.versions.compares() {
        return;
    }
    let (mut asked, mut written) = (BTreeMap::<NodeId, Instant>::new(), Instant::now());
    loop {
        let members = raft.metrics().borrow_watched().membership_config.clone();
        let peers = context.link.peers();
        let connected = peers.into_iter().filter_map(|peer| {
            let since = Instant::now().checked_sub(peer.control?.age)?;
            Some((peer.identity.node().clone(), since))
        });
        let connected: BTreeMap<_, Instant> = connected.collect();
        let due = members.membership().nodes().filter(|(id, member)| {
            let at = asked.get(id);
            let is_due = |since: &Instant| at.is_none_or(|at| at.elapsed() >= PERIOD || at < since);
            **id != context.node && connected.get(&member.name).is_some_and(is_due)
        });
        let due: Vec<_> = due.map(|(id, member)| (*id, member.clone())).collect();
        asked.extend(due.iter().map(|(id, _)| (*id, Instant::now())));
        join_all(due.iter().map(|(id, member)| context.compare(&applied, *id, member))).await;
        if let Some(fault) = context.reason_to_stop() {
            context.log.stop(&fault);
            // An error means that it has ended already.
            drop(raft.shutdown().await);
        }
        if context.is_to_save(written) {
            context.save(&file).await;
            written = Instant::now();
        }
        sleep(LOOK).await;
    }
}
