//! Changes who takes part. Only the leader does.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use openraft::ChangeMembers;
use openraft::async_runtime::watch::WatchReceiver;
use openraft::errors::{ClientWriteError, RaftError};
use tokio::time::{Instant, sleep, timeout};

use super::Consensus;
use crate::error::ChangeError;
use crate::ids::{Member, NodeId};
use crate::machine::Machine;
use crate::raft::Types;
use crate::status;

/// How often a leader that hands over looks whether another one leads.
const LOOK: Duration = Duration::from_millis(5);

/// What becomes of voters that are no voters any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Former {
    /// They follow without a vote.
    Learners,
    /// They are no members any more.
    Gone,
}

impl<M: Machine> Consensus<M> {
    /// Takes a node in that follows without a vote, or takes over what is new about it. It may be
    /// far away still; `status().matched` says how far it has come.
    ///
    /// # Errors
    /// If this node does not lead, or the change was not made in `limit`.
    pub async fn add_learner(
        &self,
        id: NodeId,
        member: Member,
        limit: Duration,
    ) -> Result<(), ChangeError> {
        self.change(ChangeMembers::AddNodes([(id, member)].into()), Former::Learners, limit).await
    }

    /// Makes exactly these members the voters. Both majorities have to agree while it is under
    /// way, so the cluster goes on.
    ///
    /// # Errors
    /// If this node does not lead, one of them is no member, another change is under way, or it
    /// was not made in `limit`.
    pub async fn change_voters(
        &self,
        voters: BTreeSet<NodeId>,
        former: Former,
        limit: Duration,
    ) -> Result<(), ChangeError> {
        self.change(ChangeMembers::ReplaceAllVoters(voters), former, limit).await
    }

    /// Ends a change of voters that its leader could not: one that lost the lead in the midst of it.
    ///
    /// # Errors
    /// If this node does not lead, or it was not done in `limit`.
    pub async fn settle(&self, limit: Duration) -> Result<(), ChangeError> {
        let metrics = self.raft.metrics().borrow_watched().clone();
        let sets = metrics.membership_config.membership().get_joint_config().clone();
        match sets.split_last() {
            Some((last, before)) if !before.is_empty() => {
                self.change_voters(last.clone(), Former::Learners, limit).await
            }
            _ => Ok(()),
        }
    }

    /// Lets members without a vote go.
    ///
    /// # Errors
    /// If this node does not lead, one of them has a vote, or it was not done in `limit`.
    pub async fn remove_learners(
        &self,
        ids: BTreeSet<NodeId>,
        limit: Duration,
    ) -> Result<(), ChangeError> {
        self.change(ChangeMembers::RemoveNodes(ids), Former::Gone, limit).await
    }

    /// Hands the lead to another voter and waits until it leads. Writes of that time are held up
    /// for about a round trip.
    ///
    /// # Errors
    /// If this node does not lead, or the other does not in `limit`; then this one may still.
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

/// The members of a new cluster.
pub(super) type NewMembers = BTreeMap<NodeId, Member>;
