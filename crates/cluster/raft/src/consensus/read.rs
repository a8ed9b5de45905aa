//! Reads of the machine, stale or linearizable.

use std::time::Duration;

use tokio::time::timeout;

use super::{Consensus, Consistency, Read};
use crate::error::ReadError;
use crate::machine::Machine;
use crate::net::read_index;
use crate::status;
use crate::wire::{Answer, Call, CallError};

impl<M: Machine> Consensus<M> {
    /// Calls `look` with the state machine. No entry is applied during the call, so `look` has to
    /// be short. A stale read never waits; a linearizable read waits for at most `limit`.
    ///
    /// # Errors
    /// Returns an error only for a linearizable read: if no quorum can be reached, if the state
    /// does not arrive in time, or if the log has stopped.
    pub async fn read<R>(
        &self,
        consistency: Consistency,
        limit: Duration,
        look: impl FnOnce(&M) -> R,
    ) -> Result<Read<R>, ReadError> {
        let age = match consistency {
            // Taken before the look: what is applied in between makes the value younger, never
            // older.
            Consistency::Stale => self.status().age,
            Consistency::Linearizable => {
                let fresh = timeout(limit, self.wait_until_fresh(limit)).await;
                fresh.unwrap_or(Err(ReadError::TimedOut))?;
                Some(Duration::ZERO)
            }
        };
        Ok(self.applied.look(|machine, index| Read { value: look(machine), index, age }))
    }

    /// Waits until every command that was carried out anywhere before this call is carried out
    /// here.
    async fn wait_until_fresh(&self, limit: Duration) -> Result<(), ReadError> {
        self.check_running().map_err(ReadError::Stopped)?;
        let no_quorum = |leader| ReadError::NoQuorum { leader };
        let leader = self.reachable_leader().map_err(no_quorum)?;
        let index = if leader == self.context.node {
            read_index(&self.raft, &self.context).await.map_err(refused)?
        } else {
            let member = status::member(&self.raft, leader).ok_or_else(|| no_quorum(None))?;
            let asking = self.context.call((leader, &member), &Call::ReadIndex, limit);
            tokio::select! {
                answer = asking => match answer {
                    Ok(Answer::ReadIndex(index)) => index,
                    Ok(Answer::Refused(refusal)) => return Err(refused(refusal)),
                    _ => return Err(no_quorum(Some(leader))),
                },
                // A leader behind a partition never answers; the lease shows that before the limit
                // does.
                () = self.leader_lost() => return Err(no_quorum(Some(leader))),
            }
        };
        let mut applied = self.applied();
        let arrived = applied.wait_for(|next_index| *next_index > index).await;
        arrived.map(drop).map_err(|_| ReadError::Stopped("it was ended".to_owned()))
    }
}

fn refused(refusal: CallError) -> ReadError {
    match refusal {
        CallError::NotLeader(leader) => ReadError::NoQuorum { leader },
        CallError::Stopped => ReadError::Stopped("the leader's log".to_owned()),
        _ => ReadError::NoQuorum { leader: None },
    }
}
