//! A node's part in the control plane.

use std::fmt;
use std::path::Path;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use arc_swap::{ArcSwap, ArcSwapOption};
use spillway_cluster_state::{
    Actor, ApplyError, ChangeDiff, Command, Entry, Proposer, RequestId, State, dry_run,
};
use spillway_link::{Link, PeerConfig};
use spillway_raft::{
    ChangeError, Consensus, Consistency, DiskClock, DiskError, DiskId, Read, ReadError, Role,
    Status,
};
use spillway_types::{NodeName, RegionName, unix_ms};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::attempts::{AttemptFailure, AttemptStep, Attempts, PAUSE, was_led};
use crate::changes::{Changed, History, TooOldError};
use crate::config::ControlPlaneConfig;
use crate::hints::{HintCounts, Hints};
use crate::machine::StateMachine;
use crate::removed::removed_reason;

/// A node's part in the control plane: the replicated state, and the ways to read and change it.
pub struct ControlPlane {
    pub(crate) config: ControlPlaneConfig,
    /// The log; empty until a cluster has given this node a number, or while its folder can't be
    /// used. Another one after a fault of the disk.
    pub(crate) log: ArcSwapOption<Consensus<StateMachine>>,
    /// Reason why there is no log that runs; empty while there is one.
    pub(crate) halted: ArcSwapOption<String>,
    pub(crate) started: Instant,
    /// Clock of the disk, for all logs that are opened one after the other.
    pub(crate) disk_clock: Arc<DiskClock>,
    /// Identity that the folder of a joining node gets.
    pub(crate) joins_as: OnceLock<DiskId>,
    /// Index after the last applied entry, sent on each change.
    pub(crate) applied: watch::Sender<u64>,
    pub(crate) link: Arc<Link>,
    /// Peers that the config gave to the link.
    pub(crate) contacts: Vec<PeerConfig>,
    /// Members that another member named to this node, and that its own state may not know yet.
    pub(crate) met: ArcSwap<Vec<PeerConfig>>,
    /// Last known reason why this node is in no cluster, or not in that of its peers.
    pub(crate) trouble: ArcSwapOption<String>,
    /// True once the cluster has removed this node.
    pub(crate) removed: watch::Sender<bool>,
    pub(crate) history: Arc<Mutex<History>>,
    pub(crate) hints: Arc<Hints>,
    pub(crate) published: ArcSwap<State>,
    /// Index of the published state, sent on each change.
    pub(crate) published_index: watch::Sender<u64>,
    pub(crate) tasks: TaskTracker,
    pub(crate) stop: CancellationToken,
}

/// Error of an order that names an unknown node.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("there is no node {0}")]
pub struct NoSuchNodeError(pub NodeName);

impl ControlPlane {
    /// Calls `look` with the state, as fresh as `consistency` demands. No entry is applied during
    /// the call: `look` must be short.
    ///
    /// # Errors
    /// Returns an error only for a linearizable read, if there is no quorum.
    pub async fn read<R>(
        &self,
        consistency: Consistency,
        limit: Duration,
        look: impl FnOnce(&State) -> R,
    ) -> Result<Read<R>, ReadError> {
        let Some(log) = self.log() else {
            return match (consistency, self.halted.load_full()) {
                (Consistency::Stale, _) => {
                    Ok(Read { value: self.look(look), index: None, age: None })
                }
                (Consistency::Linearizable, Some(why)) => Err(ReadError::Stopped((*why).clone())),
                (Consistency::Linearizable, None) => Err(ReadError::NoQuorum { leader: None }),
            };
        };
        // Everything that must be visible is applied here first; then `look` is called exactly
        // once.
        let is_fresh = consistency == Consistency::Linearizable;
        if is_fresh {
            let (begun, mut attempts) = (Instant::now(), Attempts::of_read(limit));
            loop {
                let left = limit.saturating_sub(begun.elapsed());
                let Err(error) = log.read(consistency, left, |_| ()).await else { break };
                let (failure, is_led) = (AttemptFailure::from(&error), was_led(&log.status()));
                if attempts.after(failure, begun.elapsed(), is_led) != AttemptStep::Again {
                    return Err(error);
                }
                tokio::time::sleep(PAUSE).await;
            }
        }
        let read = log.read(Consistency::Stale, limit, |machine| look(machine.state())).await?;
        Ok(Read { age: if is_fresh { Some(Duration::ZERO) } else { read.age }, ..read })
    }

    /// Returns the state of some moments ago, at most 100 ms behind the state applied here. Never
    /// waits.
    #[must_use]
    pub fn published(&self) -> Arc<State> {
        self.published.load_full()
    }

    /// Returns the state applied here now. Copies the state, in some milliseconds, if the published
    /// one is older.
    #[must_use]
    pub fn known(&self) -> Arc<State> {
        let published = self.published();
        // A log that was opened again begins behind what was published.
        if self.look(State::applied) <= published.applied() {
            return published;
        }
        Arc::new(self.look(Clone::clone))
    }

    /// Returns a channel with the index of the published state, updated on each change.
    #[must_use]
    pub fn publications(&self) -> watch::Receiver<u64> {
        self.published_index.subscribe()
    }

    /// Returns the changes that `command` would make if it were carried out now.
    ///
    /// # Errors
    /// Returns the refusal or conflict that the command would get.
    pub fn dry_run(&self, command: &Command, actor: Actor) -> Result<Vec<ChangeDiff>, ApplyError> {
        let entry = self.entry(command.clone(), actor, None);
        let state = self.published();
        dry_run(&state, &entry)
    }

    /// Returns the status of the log, with the reason if this node is in no cluster.
    #[must_use]
    pub fn status(&self) -> Status {
        let log = self.log();
        let outside = || Status {
            up: self.started.elapsed(),
            disk_times: self.disk_clock.times(),
            ..Status::outside(self.disk())
        };
        let mut status = log.map_or_else(outside, |log| Consensus::status(&log));
        if *self.removed.borrow() {
            status.fault = Some(removed_reason());
        } else if let Some(why) = self.halted.load_full() {
            status.role = Role::Stopped;
            status.fault = Some((*why).clone());
        } else if status.fault.is_none() {
            status.fault = self.trouble.load_full().map(|why| (*why).clone());
        }
        status
    }

    /// Returns true while there is no log that runs, usually because of a fault of the disk.
    #[must_use]
    pub fn is_stopped(&self) -> bool {
        self.halted.load().is_some()
    }

    /// Returns the members that another member named to this node; empty after
    /// [`Self::forget_met`].
    #[must_use]
    pub fn met(&self) -> Arc<Vec<PeerConfig>> {
        self.met.load_full()
    }

    /// Forgets the members that another member named: this node's own state is up to date.
    pub fn forget_met(&self) {
        if !self.met.load().is_empty() {
            self.met.store(Arc::default());
            if let Some(log) = self.log() {
                log.vouch([]);
            }
        }
    }

    /// Returns a channel that turns true when the cluster has removed this node, which then takes
    /// no part any more.
    #[must_use]
    pub fn removal(&self) -> watch::Receiver<bool> {
        self.removed.subscribe()
    }

    /// Returns name and region of the leader; `None` if none is known, or if it takes no orders yet
    /// because the cluster is not formed.
    #[must_use]
    pub fn leader(&self) -> Option<(NodeName, RegionName)> {
        if self.look(|state| state.cluster().is_none()) {
            return None;
        }
        let status = self.status();
        let member = status.members.get(&status.leader?)?;
        Some((member.name.clone(), member.region.clone()))
    }

    /// Returns a channel with the index after the last applied entry, updated on each change.
    #[must_use]
    pub fn applied(&self) -> watch::Receiver<u64> {
        self.applied.subscribe()
    }

    /// Returns the changes of all entries after `index`.
    ///
    /// # Errors
    /// Returns an error if changes after `index` are forgotten.
    pub fn changes_after(&self, index: u64) -> Result<Vec<Changed>, TooOldError> {
        self.history.lock().unwrap_or_else(PoisonError::into_inner).after(index)
    }

    /// Returns the counts of hints: entries that only make routing better.
    #[must_use]
    pub fn hints(&self) -> HintCounts {
        self.hints.counts(unix_ms(SystemTime::now()))
    }

    /// Hands the leadership to another node.
    ///
    /// # Errors
    /// Returns an error if this node does not lead, or if the other has no vote or does not take
    /// over within `limit`.
    pub async fn transfer_leader(&self, to: &NodeName, limit: Duration) -> Result<(), ChangeError> {
        let members = self.status().members;
        let found = members.iter().find(|(_, member)| member.name == *to);
        let unknown = || ChangeError::Refused(NoSuchNodeError(to.clone()).to_string());
        let (id, _) = found.ok_or_else(unknown)?;
        match self.log() {
            Some(log) => log.transfer_leader(*id, limit).await,
            None => Err(ChangeError::NotLeader { leader: None }),
        }
    }

    /// Has this node vote with a disk from the past before a leader has brought it up to date.
    /// Returns false if the disk is not from the past, as far as this node knows.
    ///
    /// # Errors
    /// Returns an error if there is no log, or if the disk refuses to keep that.
    pub async fn trust_disk(&self) -> Result<bool, DiskError> {
        match self.log() {
            Some(log) => log.trust_disk().await,
            None => Err(DiskError::Empty { folder: self.config.folder.clone() }),
        }
    }

    /// Returns the name of this node.
    #[must_use]
    pub fn name(&self) -> &NodeName {
        &self.config.name
    }

    /// Writes the state into `file`.
    ///
    /// # Errors
    /// Returns an error if there is no log, or if the file can't be written.
    pub async fn backup(&self, file: &Path) -> Result<(), DiskError> {
        match self.log() {
            Some(log) => log.backup(file).await,
            None => Err(DiskError::Empty { folder: self.config.folder.clone() }),
        }
    }

    /// Returns a digest of what nodes act on, equal on all nodes with the same index, and that index.
    #[must_use]
    pub fn digest(&self) -> (u128, Option<u64>) {
        let none = || (State::new().facts_digest().to_u128(), None);
        self.log().map_or_else(none, |log| log.digest())
    }

    /// Hands over the leadership and stops taking part.
    pub async fn shutdown(&self) {
        self.stop.cancel();
        // No task may propose or change members while the lead is handed over.
        self.tasks.wait().await;
        self.link.serve_joins(None);
        self.hand_over().await;
        if let Some(log) = self.log() {
            log.shutdown().await;
        }
    }

    /// Returns the log; `None` if there is none yet.
    pub(crate) fn log(&self) -> Option<Arc<Consensus<StateMachine>>> {
        self.log.load_full()
    }

    /// Returns the identity of this node's folder: 0 while it is not known.
    pub(crate) fn disk(&self) -> DiskId {
        let joins_as = || self.joins_as.get().copied().unwrap_or(DiskId(0));
        self.log().map_or_else(joins_as, |log| log.disk())
    }

    /// Notes why there is no log that runs, and logs the reason if it is another than before.
    pub(crate) fn halt(&self, why: &(impl ToString + ?Sized)) {
        let why = why.to_string();
        if self.halted.load().as_deref() != Some(&why) {
            tracing::error!("the replicated log has stopped: {why}. Clients are still served");
            self.halted.store(Some(Arc::new(why)));
        }
    }

    /// Returns true if this node may propose operators' orders.
    #[must_use]
    pub fn may_order(&self) -> bool {
        self.look(|state| state.may_order(&self.config.name))
    }

    pub(crate) fn look<R>(&self, look: impl FnOnce(&State) -> R) -> R {
        match self.log() {
            Some(log) => log.look(|machine| look(machine.state())),
            None => look(&self.published()),
        }
    }

    pub(crate) fn entry(
        &self,
        command: Command,
        actor: Actor,
        request: Option<RequestId>,
    ) -> Entry {
        Entry {
            stamp_ms: unix_ms(SystemTime::now()),
            proposer: Proposer {
                node: self.config.name.clone(),
                region: self.config.region.clone(),
            },
            request,
            actor,
            command,
        }
    }
}

impl Drop for ControlPlane {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

impl fmt::Debug for ControlPlane {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ControlPlane").field("node", &self.config.name).finish_non_exhaustive()
    }
}
