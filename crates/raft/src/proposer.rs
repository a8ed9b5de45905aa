//! Puts a command into the log of this node, if it is the leader.

use std::time::Duration;

use bytes::Bytes;
use openraft::errors::{ClientWriteError, RaftError};
use tokio::sync::watch;
use tokio::time::{Instant, sleep};

use crate::ids::NodeId;
use crate::machine::Machine;
use crate::net::Context;
use crate::raft::{CommandFrame, Types};
use crate::rules::isolation::Voice;
use crate::state_machine::Applier;
use crate::status;

pub(crate) type Raft<M> = openraft::Raft<Types, Applier<M>>;

/// Reason for which a command was not carried out, as far as this node knows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum NotDone {
    /// The command is not in the log and will not be; perhaps that node is the leader.
    NotLeader(Option<NodeId>),
    /// The command may be in the log.
    Unknown,
    /// This node's log has stopped.
    Stopped(String),
}

/// Pause before a leader that can't write yet tries again.
const PAUSE: Duration = Duration::from_millis(5);

/// Proposes here and waits until the command is carried out, at most for `limit`, and not longer
/// than a quorum answers. A leader that was just elected, or is about to hand over, is waited for.
pub(crate) async fn propose_here<M: Machine>(
    raft: &Raft<M>,
    context: &Context,
    command: Bytes,
    limit: Duration,
) -> Result<(u64, Bytes), NotDone> {
    if *context.voice.borrow() != Voice::Confirmed {
        return Err(NotDone::NotLeader(None));
    }
    let settled_by = Instant::now() + context.timing().lease().min(limit);
    loop {
        let written = propose_once(raft, context.voice.clone(), command.clone(), limit).await;
        if written != Err(NotDone::NotLeader(None)) || Instant::now() >= settled_by {
            return written;
        }
        let leads = status::leader(raft) == Some(context.node);
        if !leads || *context.voice.borrow() != Voice::Confirmed {
            return Err(NotDone::NotLeader(status::leader(raft)));
        }
        sleep(PAUSE).await;
    }
}

async fn propose_once<M: Machine>(
    raft: &Raft<M>,
    mut voice: watch::Receiver<Voice>,
    command: Bytes,
    limit: Duration,
) -> Result<(u64, Bytes), NotDone> {
    let writing = raft.client_write(CommandFrame(command));
    let isolated = async {
        // An error means that the log ends, which the write notices too.
        if voice.wait_for(|voice| *voice != Voice::Confirmed).await.is_err() {
            std::future::pending::<()>().await;
        }
    };
    let written = tokio::select! {
        biased;
        written = writing => written,
        () = isolated => return Err(NotDone::Unknown),
        () = sleep(limit) => return Err(NotDone::Unknown),
    };
    match written {
        Ok(response) => {
            let outcome = response.data.outcome.ok_or(NotDone::Unknown)?;
            Ok((response.log_id.index, outcome))
        }
        Err(RaftError::APIError(ClientWriteError::ForwardToLeader(forward))) => {
            Err(NotDone::NotLeader(forward.leader_id))
        }
        Err(RaftError::APIError(_)) => Err(NotDone::Unknown),
        // Whether it was written before the log stopped can't be told.
        Err(RaftError::Fatal(fatal)) => Err(NotDone::Stopped(fatal.to_string())),
    }
}
