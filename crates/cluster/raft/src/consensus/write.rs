//! Commands to append to the log, sent to whichever node leads.

use std::time::Duration;

use bytes::Bytes;
use spillway_types::NodeId;

use super::{Consensus, Proposed};
use crate::error::ProposeError;
use crate::machine::Machine;
use crate::proposer::propose_here;
use crate::rules::budget::Urgency;
use crate::status;
use crate::wire::{Answer, Call, CallError};

impl<M: Machine> Consensus<M> {
    /// Appends a command to the log and waits until it is applied, for at most `limit`. The command
    /// is given to one leader: a follower forwards it once, and a leader that can't write yet tries
    /// again for up to a lease, while no log has the command. Returns an error at once if there is
    /// no leader, and after a lease without a quorum.
    ///
    /// # Errors
    /// [`ProposeError::may_be_written`] returns whether the command may still be applied.
    pub async fn propose(
        &self,
        command: &M::Command,
        urgency: Urgency,
        limit: Duration,
    ) -> Result<Proposed<M::Outcome>, ProposeError> {
        let command = spillway_codec::encode(command)?;
        if command.len() > crate::COMMAND_BYTES_MAX {
            return Err(ProposeError::TooLarge { bytes_max: crate::COMMAND_BYTES_MAX });
        }
        self.check_running().map_err(ProposeError::Stopped)?;
        let no_quorum = |leader| ProposeError::NoQuorum { leader };
        let leader = self.reachable_leader().map_err(no_quorum)?;
        // Only now: what can't be written without a leader takes nothing from the budget.
        self.take_budget(urgency)?;
        let (index, outcome) = if leader == self.context.node {
            self.propose_as_leader(command, limit).await?
        } else {
            self.forward(leader, command, limit).await?
        };
        match spillway_codec::decode(&outcome) {
            Ok(outcome) => Ok(Proposed { index, outcome }),
            // The command was carried out. A leader of a later version may name an outcome that
            // this one does not know.
            Err(error) => {
                tracing::warn!(index, %error, "the outcome of a command can't be read");
                Err(ProposeError::Unknown)
            }
        }
    }

    async fn propose_as_leader(
        &self,
        command: Bytes,
        limit: Duration,
    ) -> Result<(u64, Bytes), ProposeError> {
        let written = propose_here(&self.raft, &self.context, command.clone(), limit).await;
        match written {
            // This node has just handed over the lead.
            Err(ProposeError::NoQuorum { leader: Some(leader) }) if leader != self.context.node => {
                self.forward(leader, command, limit).await
            }
            written => written,
        }
    }

    async fn forward(
        &self,
        leader: NodeId,
        command: Bytes,
        limit: Duration,
    ) -> Result<(u64, Bytes), ProposeError> {
        let Some(member) = status::member(&self.raft, leader) else {
            return Err(ProposeError::NoQuorum { leader: None });
        };
        let limit_ms = u32::try_from(limit.as_millis()).unwrap_or(u32::MAX);
        let call = Call::Propose { command, limit_ms };
        let answer = tokio::select! {
            answer = self.context.call((leader, &member), &call, limit) => answer,
            () = self.leader_lost() => return Err(ProposeError::Unknown),
        };
        match answer {
            Ok(Answer::Proposed { index, outcome }) => Ok((index, outcome)),
            Ok(Answer::Refused(refusal)) => Err(refused(refusal)),
            Ok(_) => Err(ProposeError::Unknown),
            Err(fault) if fault.is_harmless() => {
                Err(ProposeError::NoQuorum { leader: Some(leader) })
            }
            Err(_) => Err(ProposeError::Unknown),
        }
    }
}

fn refused(refusal: CallError) -> ProposeError {
    match refusal {
        CallError::NotLeader(leader) => ProposeError::NoQuorum { leader },
        CallError::Unreadable => ProposeError::TooNew,
        CallError::NotYours => ProposeError::Malformed("it is in another node's name".to_owned()),
        // Every other refusal comes before anything is written.
        _ => ProposeError::NoQuorum { leader: None },
    }
}
