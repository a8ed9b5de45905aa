//! Changes of members and of the leader. Only the leader makes them.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use openraft::ChangeMembers;
use openraft::async_runtime::watch::WatchReceiver;
use openraft::errors::{ClientWriteError, RaftError};
use spillway_types::NodeId;
use tokio::time::{Instant, sleep, timeout};

use super::Consensus;
use crate::error::ChangeError;
use crate::ids::Member;
use crate::machine::Machine;
use crate::raft::Types;
use crate::status;

/// Pause before a leader looks again whether another node leads, or whether it may write itself.
const LOOK: Duration = Duration::from_millis(5);

/// Fate of voters that lose their vote.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Former {
    /// Former voters follow without a vote.
    Learners,
    /// Former voters are members no longer.
    Gone,
}

impl<M: Machine> Consensus<M> {
    /// Adds a member that follows without a vote, or updates what is known of a member. The node
    /// may be far behind when this returns; `status().matched` shows its progress.
    ///
    /// # Errors
    /// Returns an error if this node does not lead, or if the change was not made within `limit`.
    pub async fn add_learner(
        &self,
        id: NodeId,
        member: Member,
        limit: Duration,
    ) -> Result<(), ChangeError> {
        self.change(ChangeMembers::AddNodes([(id, member)].into()), Former::Learners, limit).await
    }

    /// Makes exactly these members the voters. Both majorities have to agree during the change, so
    /// the cluster goes on working.
    ///
    /// # Errors
    /// Returns an error if this node does not lead, if one of `voters` is no member, if another
    /// change is under way, or if the change was not made within `limit`.
    pub async fn change_voters(
        &self,
        voters: BTreeSet<NodeId>,
        former: Former,
        limit: Duration,
    ) -> Result<(), ChangeError> {
        self.change(ChangeMembers::ReplaceAllVoters(voters), former, limit).await
    }

    /// Finishes a change of voters that its leader could not finish because it lost the lead.
    ///
    /// # Errors
    /// Returns an error if this node does not lead, or if the change was not made within `limit`.
    pub async fn settle(&self, limit: Duration) -> Result<(), ChangeError> {
        let metrics = self.raft.metrics().borrow_watched().clone();
        let sets = metrics.membership_config.membership().get_joint_config().clone();
        match sets.split_last() {
            // Two sets of voters are there only while a change to the last one is not finished.
            Some((last, before)) if !before.is_empty() => {
                self.change_voters(last.clone(), Former::Learners, limit).await
            }
            _ => Ok(()),
        }
    }

    /// Removes members that have no vote.
    ///
    /// # Errors
    /// Returns an error if this node does not lead, if one of `ids` has a vote, or if the change
    /// was not made within `limit`.
    pub async fn remove_learners(
        &self,
        ids: BTreeSet<NodeId>,
        limit: Duration,
    ) -> Result<(), ChangeError> {
        self.change(ChangeMembers::RemoveNodes(ids), Former::Gone, limit).await
    }

    /// Transfers leadership to another voter and waits until that voter leads. Writes wait for
    /// about a round trip during the transfer.
    ///
    /// # Errors
    /// Returns an error if this node does not lead, if `to` has no vote, or if `to` does not lead
    /// within `limit`. In the last case this node may still lead.
    pub async fn transfer_leader(&self, to: NodeId, limit: Duration) -> Result<(), ChangeError> {
        let leader = status::leader(&self.raft);
        if leader == Some(to) {
            return Ok(());
        }
        if leader != Some(self.context.node) {
            return Err(ChangeError::NotLeader { leader });
        }
        if !self.status().voters.contains(&to) {
            return Err(ChangeError::Refused(format!("node {to} has no vote")));
        }
        let by = Instant::now() + limit;
        // Before the handover begins: from then on no read may rest on the followers' promises.
        status::give_up_lease(&self.raft, &self.context, to);
        let asked = self.raft.trigger().transfer_leader(to).await;
        asked.map_err(|fatal| ChangeError::Stopped(fatal.to_string()))?;
        while status::leader(&self.raft) != Some(to) {
            if Instant::now() >= by {
                return Err(ChangeError::Unknown);
            }
            sleep(LOOK).await;
        }
        Ok(())
    }

    async fn change(
        &self,
        change: ChangeMembers<NodeId, Member>,
        former: Former,
        limit: Duration,
    ) -> Result<(), ChangeError> {
        let settled_by = Instant::now() + self.context.timing().lease().min(limit);
        loop {
            let changed = self.change_once(change.clone(), former, limit).await;
            // A leader that was just elected can't write before a quorum has answered it.
            let leads = status::leader(&self.raft) == Some(self.context.node);
            let is_new = changed == Err(ChangeError::NotLeader { leader: None }) && leads;
            if !is_new || Instant::now() >= settled_by {
                return changed;
            }
            sleep(LOOK).await;
        }
    }

    async fn change_once(
        &self,
        change: ChangeMembers<NodeId, Member>,
        former: Former,
        limit: Duration,
    ) -> Result<(), ChangeError> {
        let changing = self.raft.change_membership(change, former == Former::Learners);
        match timeout(limit, changing).await {
            // Only the wait has ended: openraft goes on with the change.
            Err(_) => Err(ChangeError::Unknown),
            Ok(Ok(_)) => Ok(()),
            Ok(Err(error)) => Err(refused(error)),
        }
    }
}

fn refused(error: RaftError<Types, ClientWriteError<Types>>) -> ChangeError {
    match error {
        RaftError::Fatal(fatal) => ChangeError::Stopped(fatal.to_string()),
        RaftError::APIError(ClientWriteError::ForwardToLeader(forward)) => {
            ChangeError::NotLeader { leader: forward.leader_id }
        }
        RaftError::APIError(ClientWriteError::LogEntryDiscarded(_)) => ChangeError::Unknown,
        RaftError::APIError(error) => ChangeError::Refused(error.to_string()),
    }
}

/// Members of a new cluster.
pub(super) type NewMembers = BTreeMap<NodeId, Member>;
