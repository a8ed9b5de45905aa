//! Up to where a reader has to wait.

use std::collections::BTreeSet;
use std::time::Duration;

use openraft::async_runtime::watch::WatchReceiver;
use spillway_types::NodeId;
use tokio::time::{Instant, sleep, timeout};

use super::context::Context;
use crate::machine::Machine;
use crate::raft::Vote;
use crate::rules::isolation::Voice;
use crate::state_machine::Raft;
use crate::wire::{Ballot, CallError};

/// Pause before a leader that has committed nothing yet looks again whether it has.
const LOOK: Duration = Duration::from_millis(5);

/// Up to where a reader has to wait: the last entry that was committed when it asked. At once while
/// a majority has promised not to elect another leader; otherwise when one has answered what was
/// sent after the question.
pub(crate) async fn read_index<M: Machine>(
    raft: &Raft<M>,
    context: &Context,
) -> Result<u64, CallError> {
    // Taken first: only an answer to something sent after this shows who leads now.
    let asked = context.now();
    let by = Instant::now() + context.timing().lease();
    let (ballot, index) = committed_as_leader(raft, context, by).await?;
    if context.has_lease(ballot, &voters(raft)) {
        return Ok(index);
    }
    raft.trigger().heartbeat().await.map_err(|_| CallError::Stopped)?;
    let (mut followers, mut voice) = (context.followers.subscribe(), context.voice.clone());
    let confirmed = followers.wait_for(|followers| {
        let confirmed = followers.confirmed(ballot, context.node, &voters(raft));
        confirmed.is_some_and(|at| at > asked)
    });
    let confirming = async {
        tokio::select! {
            confirmed = confirmed => confirmed.is_ok(),
            _ = voice.wait_for(|voice| *voice != Voice::Confirmed) => false,
        }
    };
    match timeout(by.saturating_duration_since(Instant::now()), confirming).await {
        Ok(true) => Ok(index),
        Ok(false) | Err(_) => Err(CallError::NotLeader(None)),
    }
}

impl Context {
    /// Returns true if no other leader can arise now, as a majority has promised.
    pub(super) fn has_lease(&self, ballot: Ballot, sets: &[BTreeSet<NodeId>]) -> bool {
        let until = self.followers.borrow().lease_until(ballot, self.node, sets);
        until.is_some_and(|until| self.now() < until)
    }
}

/// This leader's vote and the last entry that it knows to be committed, once one of its own term
/// is: before that, it does not know all that earlier leaders have committed.
async fn committed_as_leader<M: Machine>(
    raft: &Raft<M>,
    context: &Context,
    by: Instant,
) -> Result<(Ballot, u64), CallError> {
    loop {
        let seen = raft.with_raft_state(|state| {
            let leader = state.vote_ref().leader_id.voted_for;
            (*state.vote_ref(), state.cluster_committed().copied(), leader)
        });
        let (vote, committed, leader): (Vote, _, _) = seen.await.map_err(|_| CallError::Stopped)?;
        if !vote.committed || leader != context.node {
            return Err(CallError::NotLeader(vote.committed.then_some(leader)));
        }
        let own = committed.filter(|at| at.leader_id.term == vote.leader_id.term);
        match own {
            Some(at) => return Ok(((&vote).into(), at.index)),
            None if Instant::now() >= by => return Err(CallError::NotLeader(None)),
            None => sleep(LOOK).await,
        }
    }
}

/// The voters; two sets while one replaces the other.
pub(crate) fn voters<M: Machine>(raft: &Raft<M>) -> Vec<BTreeSet<NodeId>> {
    raft.metrics().borrow_watched().membership_config.membership().get_joint_config().clone()
}
