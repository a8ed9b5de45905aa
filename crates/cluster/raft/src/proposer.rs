//! Puts a command into the log of this node, if it is the leader.

use std::time::Duration;

use bytes::Bytes;
use openraft::errors::{ClientWriteError, RaftError};
use tokio::sync::watch;
use tokio::time::{Instant, sleep};

use crate::error::ProposeError;
use crate::machine::Machine;
use crate::net::Context;
use crate::raft::CommandFrame;
use crate::rules::isolation::Voice;
use crate::state_machine::Raft;
use crate::status;

/// Pause before a leader that can't write yet looks again.
const PAUSE: Duration = Duration::from_millis(5);

/// Proposes here and waits until the command is applied, for at most `limit`, and only as long as a
/// quorum answers. openraft refuses while a leader that was just elected has no answer of a quorum
/// yet, or is about to hand over. This is waited for, up to a lease, with nothing written.
///
/// # Errors
/// Returns [`ProposeError::NoQuorum`] if no log has the command, otherwise
/// [`ProposeError::Unknown`].
pub(crate) async fn propose_here<M: Machine>(
    raft: &Raft<M>,
    context: &Context,
    command: Bytes,
    limit: Duration,
) -> Result<(u64, Bytes), ProposeError> {
    // Without a quorum the entry would stay in this log, and could be applied long after its caller
    // got an error.
    if *context.voice.borrow() != Voice::Confirmed {
        return Err(ProposeError::NoQuorum { leader: None });
    }
    let settled_by = Instant::now() + context.timing().lease().min(limit);
    loop {
        let written = propose_once(raft, context.voice.clone(), command.clone(), limit).await;
        // openraft names no leader while this node was just elected, or is about to hand over.
        if written != Err(ProposeError::NoQuorum { leader: None }) || Instant::now() >= settled_by {
            return written;
        }
        let leads = status::leader(raft) == Some(context.node);
        if !leads || *context.voice.borrow() != Voice::Confirmed {
            return Err(ProposeError::NoQuorum { leader: status::leader(raft) });
        }
        sleep(PAUSE).await;
    }
}

async fn propose_once<M: Machine>(
    raft: &Raft<M>,
    mut voice: watch::Receiver<Voice>,
    command: Bytes,
    limit: Duration,
) -> Result<(u64, Bytes), ProposeError> {
    let writing = raft.client_write(CommandFrame(command));
    let isolated = async {
        // An error means that the log ends, which the write notices too.
        if voice.wait_for(|voice| *voice != Voice::Confirmed).await.is_err() {
            std::future::pending::<()>().await;
        }
    };
    let written = tokio::select! {
        // In this order: a write that is done counts, even if the quorum is lost in the same
        // moment.
        biased;
        written = writing => written,
        () = isolated => return Err(ProposeError::Unknown),
        () = sleep(limit) => return Err(ProposeError::Unknown),
    };
    match written {
        Ok(response) => {
            let outcome = response.data.outcome.ok_or(ProposeError::Unknown)?;
            Ok((response.log_id.index, outcome))
        }
        Err(RaftError::APIError(ClientWriteError::ForwardToLeader(forward))) => {
            Err(ProposeError::NoQuorum { leader: forward.leader_id })
        }
        Err(RaftError::APIError(_)) => Err(ProposeError::Unknown),
        // It is unknown if the entry was written before the log stopped.
        Err(RaftError::Fatal(_)) => Err(ProposeError::Unknown),
    }
}
