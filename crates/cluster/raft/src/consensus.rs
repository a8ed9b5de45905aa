//! Replicated log of one node, with its operations.

mod form;
mod members;
mod read;
mod start;
mod steering;
mod watch;
mod write;

pub use members::Former;

use std::fmt;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use spillway_link::Link;
use spillway_types::{DiskId, NodeId, NodeName};
use tokio::sync::{oneshot, watch as channel};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::backup;
use crate::config::RaftConfig;
use crate::disk::DiskError;
use crate::error::{ProposeError, RaftStartError};
use crate::ids::Member;
use crate::machine::Machine;
use crate::net::{Context, LeaderContact};
use crate::rules::budget::{Budget, Urgency};
use crate::state_machine::{Applied, Raft, stored};
use crate::status::{self, Role, Status};

/// Time limit for closing the log at shutdown: a disk that hangs must not keep the process alive.
const END_LIMIT: Duration = Duration::from_secs(10);

/// Replicated log of one node: keeps the machine the same as on all other nodes of its cluster.
///
/// Dropping a `Consensus` stops it without waiting for the disk; [`Self::shutdown`] waits.
pub struct Consensus<M: Machine> {
    raft: Raft<M>,
    pub(crate) context: Arc<Context>,
    pub(crate) applied: Arc<Applied<M>>,
    heard: LeaderContact,
    budget: Mutex<Budget>,
    config: RaftConfig,
    started: Instant,
    tasks: TaskTracker,
    stop: CancellationToken,
    /// Signal that the log's file is closed.
    closed: Mutex<Option<oneshot::Receiver<()>>>,
}

/// Result of a command that was carried out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Proposed<T> {
    /// Index of the command in the log.
    pub index: u64,
    /// Answer of the machine to the command.
    pub outcome: T,
}

/// Freshness of a read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Consistency {
    /// The read sees every command that was carried out before the read began. Needs a quorum.
    Linearizable,
    /// The read sees the state of this node, which may be old.
    Stale,
}

/// Result of a read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Read<R> {
    /// The value.
    pub value: R,
    /// Index of the last entry applied before the read; `None` if there was none.
    pub index: Option<u64>,
    /// Greatest possible age of the value; `None` if this node never had contact to a leader.
    pub age: Option<Duration>,
}

impl<M: Machine> Consensus<M> {
    /// Opens the folder and begins to take part in the cluster over `link`, which has to be the
    /// link of `config.name`. An empty folder is in no cluster: see [`Self::form`]. Needs a tokio
    /// runtime.
    ///
    /// # Errors
    /// Returns an error if the settings contradict each other or the folder can't be used, above
    /// all if the disk has lost data that it confirmed.
    pub async fn start(
        config: RaftConfig,
        link: Arc<Link>,
        machine: M,
    ) -> Result<Self, RaftStartError> {
        start::start(config, link, machine).await
    }

    /// Returns the present status of this node's log.
    #[must_use]
    pub fn status(&self) -> Status {
        let applied = self.applied.look(|_, index| index);
        let disk_times = self.config.disk_clock.times();
        let status = status::status(&self.raft, &self.context, &self.heard, applied);
        Status { disk_times, ..status }
    }

    /// Returns this node as the other nodes have to know it.
    #[must_use]
    pub fn member(&self) -> Member {
        let RaftConfig { name, region, .. } = &self.config;
        Member { name: name.clone(), region: region.clone(), disk: self.context.disk }
    }

    /// Returns the disk of this node.
    #[must_use]
    pub fn disk(&self) -> DiskId {
        self.context.disk
    }

    /// Returns a channel with the index after the last applied entry, updated on each change.
    #[must_use]
    pub fn applied(&self) -> channel::Receiver<u64> {
        self.applied.watch()
    }

    /// Calls `look` with the current state machine of this node. No entry is applied during the
    /// call, so `look` has to be short.
    pub fn look<R>(&self, look: impl FnOnce(&M) -> R) -> R {
        self.applied.look(|machine, _| look(machine))
    }

    /// Returns the digest of the machine and the index of the last applied entry. The digest is
    /// equal on all nodes with the same index.
    #[must_use]
    pub fn digest(&self) -> (u128, Option<u64>) {
        self.applied.look(|machine, index| (machine.digest(), index))
    }

    /// Sets the names of the other members, as a member of the cluster reported them. These nodes
    /// may lead while this node's own log does not know them yet.
    pub fn vouch(&self, names: impl IntoIterator<Item = NodeName>) {
        self.context.guard.vouch(names);
    }

    /// Writes all the state that is applied here into one file, for [`crate::restore`].
    ///
    /// # Errors
    /// Returns an error if the state can't be encoded or the file can't be written.
    pub async fn backup(&self, file: &Path) -> Result<(), DiskError> {
        let (meta, data) = self.applied.snapshot().map_err(DiskError::io("encoding the state"))?;
        backup::write(file, self.context.disk, &stored(&meta, data)).await
    }

    /// Writes to the disk and waits until it has confirmed that, for a log whose disk had a fault.
    ///
    /// # Errors
    /// Returns an error if the disk still refuses.
    pub async fn check_disk(&self) -> Result<(), DiskError> {
        self.context.log.check_disk().await
    }

    /// Has this node vote with a disk from the past before a leader has brought it up to date: an
    /// operator accepts that what the disk lacks may be lost. Returns false if the disk is not from
    /// the past, as far as this node knows.
    ///
    /// # Errors
    /// Returns an error if the disk refuses to keep that.
    pub async fn trust_disk(&self) -> Result<bool, DiskError> {
        let comparison = &self.context.comparison;
        let Some(past) = comparison.forbidding_past() else { return Ok(false) };
        // Higher than every count reported so far, so that other nodes take the next process for a
        // later one.
        self.context.log.raise_serial(past + 1).await?;
        comparison.raised(past);
        tracing::warn!("this node votes with an outdated disk, as an operator ordered");
        Ok(true)
    }

    /// Returns true if the log has stopped because this node's state is another one than its cluster's:
    /// to open it again would change nothing.
    #[must_use]
    pub fn is_apart(&self) -> bool {
        self.context.log.fault().is_some_and(|fault| fault.is_apart())
    }

    /// Stops taking part and waits until the folder is closed. A leader should hand over the lead
    /// before: see [`Self::transfer_leader`].
    pub async fn shutdown(&self) {
        // From here on no other node can begin something that the end would cut off.
        self.context.link.serve_streams(None);
        self.stop.cancel();
        self.tasks.close();
        // An error means that the log has stopped with a fault, which the status shows.
        drop(tokio::time::timeout(END_LIMIT, self.raft.shutdown()).await);
        self.tasks.wait().await;
        // Only now: openraft and the tasks could write until here.
        self.context.log.close();
        let closed = self.closed.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(closed) = closed {
            drop(tokio::time::timeout(END_LIMIT, closed).await);
        }
    }

    /// Returns the reason as an error if the log of this node has stopped.
    fn check_running(&self) -> Result<(), String> {
        let status = self.status();
        match status.role {
            Role::Stopped => Err(status.fault.unwrap_or_else(|| "it was ended".to_owned())),
            _ => Ok(()),
        }
    }

    /// Returns the leader, if this node leads or has received something from the leader within the
    /// lease. The error is the node that may be the leader.
    fn reachable_leader(&self) -> Result<NodeId, Option<NodeId>> {
        let leader = status::leader(&self.raft);
        let lease = self.context.timing().lease();
        match leader {
            Some(leader) if leader == self.context.node => Ok(leader),
            // A leader that was silent for a lease may be cut off. A question to it would use up
            // the caller's time.
            Some(leader) if self.heard.age().is_some_and(|age| age < lease) => Ok(leader),
            leader => Err(leader),
        }
    }

    /// Waits until this node has received nothing from the leader for a lease.
    async fn leader_lost(&self) {
        let lease = self.context.timing().lease();
        while let Some(left) = self.heard.age().and_then(|age| lease.checked_sub(age)) {
            // A little longer, or the timer could fire just before the lease is over.
            tokio::time::sleep(left + Duration::from_millis(1)).await;
        }
    }

    fn take_budget(&self, urgency: Urgency) -> Result<(), ProposeError> {
        let mut budget = self.budget.lock().unwrap_or_else(PoisonError::into_inner);
        let taken = budget.take(urgency, self.started.elapsed());
        taken.map_err(|retry_after| ProposeError::Budget { retry_after })
    }
}

impl<M: Machine> Drop for Consensus<M> {
    fn drop(&mut self) {
        // After a shutdown the link may serve the streams of another log already.
        if !self.stop.is_cancelled() {
            self.context.link.serve_streams(None);
        }
        self.stop.cancel();
        self.context.log.close();
    }
}

impl<M: Machine> fmt::Debug for Consensus<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Consensus").field("node", &self.context.node).finish_non_exhaustive()
    }
}
