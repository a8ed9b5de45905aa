//! One node's part in the cluster.

use std::fmt;
use std::path::Path;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use arc_swap::{ArcSwap, ArcSwapOption};
use spillway_consensus::{
    ChangeError, Config, Consensus, Consistency, DiskFault, DiskId, NodeId, ProposeError, Proposed,
    Read, ReadError, StartFault, Status, Timing, Urgency, discard_blank, owner_of,
};
use spillway_control::{
    Actor, ChangeDiff, Command, Entry, Fault, Outcome, Proposer, RequestId, State, admits, dry_run,
};
use spillway_link::{Link, PeerConfig};
use spillway_types::{NodeName, RegionName};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::beginning::Beginning;
use crate::changes::{Changed, History, TooOld};
use crate::config::AgreementConfig;
use crate::hints::{HintCounts, Hints, urgency};
use crate::machine::Replica;
use crate::settling::Settling;
use crate::{clock, formation, join, membership, publish};

/// One node's part in the cluster: the replicated state, and how it is changed.
pub struct Agreement {
    pub(crate) config: AgreementConfig,
    /// None as long as no cluster has given this node a number.
    pub(crate) log: OnceLock<Consensus<Replica>>,
    /// What this node's folder is, with a log or before.
    pub(crate) disk: DiskId,
    pub(crate) link: Arc<Link>,
    /// The peers that the link was told of by the config.
    pub(crate) contacts: Vec<PeerConfig>,
    /// The members that another one has told this node, which its own state may not know yet.
    pub(crate) met: ArcSwap<Vec<PeerConfig>>,
    /// Why this node is in no cluster, or not in that of its peers, as it was told last.
    pub(crate) trouble: ArcSwapOption<String>,
    /// Whether the cluster has removed this node.
    pub(crate) removed: watch::Sender<bool>,
    history: Arc<Mutex<History>>,
    hints: Arc<Hints>,
    pub(crate) published: ArcSwap<State>,
    /// Index of what is published, told on each change.
    pub(crate) published_index: watch::Sender<u64>,
    tasks: TaskTracker,
    stop: CancellationToken,
}

/// There is no such node.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("there is no node {0}")]
pub struct NoSuchNode(pub NodeName);

impl Agreement {
    /// Opens the folder and takes part from now on: forms the cluster with the other seeds if there
    /// is none yet. Comes back before that is done. Needs a tokio runtime.
    ///
    /// # Errors
    /// If the folder can't be used.
    pub async fn start(config: AgreementConfig, link: Arc<Link>) -> Result<Arc<Self>, StartFault> {
        let beginning = Beginning::of(&config)?;
        let contacts = link.peers().into_iter().map(|peer| PeerConfig {
            identity: peer.identity,
            address: peer.address,
            rtt_ms: None,
        });
        let mut agreement = Self {
            config,
            log: OnceLock::new(),
            disk: DiskId(0),
            contacts: contacts.collect(),
            met: ArcSwap::default(),
            trouble: ArcSwapOption::empty(),
            removed: watch::Sender::new(false),
            link,
            history: Arc::default(),
            hints: Arc::default(),
            published: ArcSwap::default(),
            published_index: watch::Sender::new(0),
            tasks: TaskTracker::new(),
            stop: CancellationToken::new(),
        };
        let agreement = match beginning {
            Beginning::Joining(disk) => {
                agreement.disk = disk;
                // They don't know this node, and would refuse it again and again.
                agreement.link.set_peers(Vec::new());
                let agreement = Arc::new(agreement);
                agreement.spawn(join::run);
                agreement
            }
            Beginning::Numbered(node) => {
                let log = Box::pin(agreement.open_log(node, None)).await?;
                agreement.disk = log.disk();
                agreement.log = OnceLock::from(log);
                let agreement = Arc::new(agreement);
                agreement.take_part();
                agreement
            }
        };
        let porter = join::Porter(Arc::downgrade(&agreement));
        agreement.link.open_gate(Some(Arc::new(porter)));
        agreement.tasks.close();
        Ok(agreement)
    }

    /// Opens the log under the number that this node has.
    async fn open_log(
        &self,
        node: NodeId,
        disk: Option<DiskId>,
    ) -> Result<Consensus<Replica>, StartFault> {
        let AgreementConfig { name, region, folder, .. } = &self.config;
        let mut config = Config::new(node, name.clone(), region.clone(), folder.clone());
        config.disk = disk;
        config.timing = Timing::for_rtt(self.config.rtt_max);
        config.compaction = crate::config::compaction();
        let machine = Replica::new(Arc::clone(&self.history), Arc::clone(&self.hints));
        Consensus::start(config, Arc::clone(&self.link), machine).await
    }

    /// Begins the log of a node that has just been given its number.
    pub(crate) async fn begin(&self, node: NodeId) -> Result<(), StartFault> {
        let folder = &self.config.folder;
        if owner_of(folder)?.is_some_and(|owner| owner.node != node) {
            // It was begun as one of those that would form a cluster, and they did without it.
            discard_blank(folder)?;
        }
        let log = Box::pin(self.open_log(node, Some(self.disk))).await?;
        log.vouch(self.met().iter().map(|peer| peer.identity.node().clone()));
        // Only one task does this, and only once.
        drop(self.log.set(log));
        Ok(())
    }

    /// From now on there is a log, and this node does its part.
    pub(crate) fn take_part(self: &Arc<Self>) {
        self.spawn(formation::run);
        self.spawn(membership::run);
        self.spawn(publish::run);
        self.spawn(clock::run);
        self.spawn(join::watch_standing);
    }

    /// Runs until the node ends or the last handle is gone.
    fn spawn<F>(self: &Arc<Self>, task: impl FnOnce(std::sync::Weak<Self>) -> F)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let (stop, task) = (self.stop.clone(), task(Arc::downgrade(self)));
        self.tasks.spawn(async move {
            stop.run_until_cancelled(task).await;
        });
    }

    /// Puts a command into the log, wherever the leader is, and waits until it was carried out here
    /// or there, at most for `limit`. With a `request` a repetition does nothing twice. What nodes
    /// propose by themselves has a budget, in which hints leave room for health: a refusal of a
    /// hint for want of it is usual, and counted.
    ///
    /// # Errors
    /// The kinds of [`ProposeError`] say whether it may be carried out after all.
    pub async fn propose(
        &self,
        command: Command,
        actor: Actor,
        request: Option<RequestId>,
        limit: Duration,
    ) -> Result<Proposed<Outcome>, ProposeError> {
        let refused = self.look(|state| admits(state, &command).err());
        if let Some(refusal) = refused {
            let index = self.look(State::applied);
            return Ok(Proposed { index, outcome: Outcome::Refused(refusal) });
        }
        let urgency = urgency(&command, &actor);
        if *self.removed.borrow() {
            return Err(ProposeError::Stopped(join::removed_reason()));
        }
        let Some(log) = self.log.get() else {
            return Err(ProposeError::NoQuorum { leader: None });
        };
        let entry = self.entry(command, actor, request);
        if let Err(refusal) = self.look(|state| state.check_proposer(&entry)) {
            let index = self.look(State::applied);
            return Ok(Proposed { index, outcome: Outcome::Refused(refusal) });
        }
        let settling = Settling::until(limit);
        loop {
            match log.propose(&entry, urgency, limit).await {
                Err(ProposeError::NoQuorum { .. })
                    if urgency == Urgency::Operator && settling.wait(log).await => {}
                Err(error @ ProposeError::Budget { .. }) => {
                    if urgency == Urgency::Hint {
                        self.hints.put_off();
                    }
                    return Err(error);
                }
                done => return done,
            }
        }
    }

    /// Looks at the state, as fresh as it has to be. Nothing is applied meanwhile: be short.
    ///
    /// # Errors
    /// Only of a linearizable read: if no quorum is there.
    pub async fn read<R>(
        &self,
        consistency: Consistency,
        limit: Duration,
        look: impl FnOnce(&State) -> R,
    ) -> Result<Read<R>, ReadError> {
        let Some(log) = self.log.get() else {
            return match consistency {
                Consistency::Stale => Ok(Read { value: self.look(look), index: None, age: None }),
                Consistency::Linearizable => Err(ReadError::NoQuorum { leader: None }),
            };
        };
        let settling = Settling::until(limit);
        // First all that has to be seen is applied here; then the look can't fail.
        let is_fresh = consistency == Consistency::Linearizable;
        if is_fresh {
            while let Err(error) = log.read(consistency, limit, |_| ()).await {
                let may_pass = matches!(error, ReadError::NoQuorum { .. });
                if !may_pass || !settling.wait(log).await {
                    return Err(error);
                }
            }
        }
        let read = log.read(Consistency::Stale, limit, |replica| look(replica.state())).await?;
        Ok(Read { age: if is_fresh { Some(Duration::ZERO) } else { read.age }, ..read })
    }

    /// The state some moments ago, at most 100 ms behind what is applied here. Never waits.
    #[must_use]
    pub fn published(&self) -> Arc<State> {
        self.published.load_full()
    }

    /// The state as it is applied here now: a copy of some milliseconds.
    #[must_use]
    pub fn known(&self) -> Arc<State> {
        let published = self.published();
        if self.look(State::applied) == published.applied() {
            return published;
        }
        Arc::new(self.look(Clone::clone))
    }

    /// Index of the last entry in what is published, told on each change.
    #[must_use]
    pub fn publications(&self) -> watch::Receiver<u64> {
        self.published_index.subscribe()
    }

    /// What `command` would change, if it were carried out now.
    ///
    /// # Errors
    /// What would be answered instead.
    pub fn dry_run(&self, command: &Command, actor: Actor) -> Result<Vec<ChangeDiff>, Fault> {
        let entry = self.entry(command.clone(), actor, None);
        let state = self.published();
        dry_run(&state, &entry)
    }

    /// What can be said of the log.
    #[must_use]
    pub fn status(&self) -> Status {
        let outside = || Status::outside(self.disk);
        let mut status = self.log.get().map_or_else(outside, Consensus::status);
        if *self.removed.borrow() {
            status.fault = Some(join::removed_reason());
        } else if status.fault.is_none() {
            status.fault = self.trouble.load_full().map(|why| (*why).clone());
        }
        status
    }

    /// The members that another one has told this node, as long as this node's own state may not know
    /// them: until [`Self::forget_met`].
    #[must_use]
    pub fn met(&self) -> Arc<Vec<PeerConfig>> {
        self.met.load_full()
    }

    /// This node's state is what the others' is: nobody else's word on members is needed.
    pub fn forget_met(&self) {
        if !self.met.load().is_empty() {
            self.met.store(Arc::default());
            if let Some(log) = self.log.get() {
                log.vouch([]);
            }
        }
    }

    /// Told when the cluster has removed this node, which then takes no part any more.
    #[must_use]
    pub fn removal(&self) -> watch::Receiver<bool> {
        self.removed.subscribe()
    }

    /// The node that may lead.
    #[must_use]
    pub fn leader(&self) -> Option<(NodeName, RegionName)> {
        let status = self.status();
        let member = status.members.get(&status.leader?)?;
        Some((member.name.clone(), member.region.clone()))
    }

    /// How far the state has come: the index after the last entry, told on each change.
    #[must_use]
    pub fn applied(&self) -> watch::Receiver<u64> {
        // Without a log nothing is applied; what is published then is followed until there is one.
        self.log.get().map_or_else(|| self.publications(), Consensus::applied)
    }

    /// What entries after `index` changed.
    ///
    /// # Errors
    /// If that is forgotten.
    pub fn changes_after(&self, index: u64) -> Result<Vec<Changed>, TooOld> {
        self.history.lock().unwrap_or_else(PoisonError::into_inner).after(index)
    }

    /// How much of the log is for what only makes routing better.
    #[must_use]
    pub fn hints(&self) -> HintCounts {
        self.hints.counts(now_ms())
    }

    /// Hands the lead to another node.
    ///
    /// # Errors
    /// If this node does not lead, or the other has no vote or does not take over in `limit`.
    pub async fn transfer_leader(&self, to: &NodeName, limit: Duration) -> Result<(), ChangeError> {
        let members = self.status().members;
        let found = members.iter().find(|(_, member)| member.name == *to);
        let unknown = || ChangeError::Refused(NoSuchNode(to.clone()).to_string());
        let (id, _) = found.ok_or_else(unknown)?;
        match self.log.get() {
            Some(log) => log.transfer_leader(*id, limit).await,
            None => Err(ChangeError::NotLeader { leader: None }),
        }
    }

    /// Writes the state into one file.
    ///
    /// # Errors
    /// If it can't be written.
    pub async fn backup(&self, file: &Path) -> Result<(), DiskFault> {
        match self.log.get() {
            Some(log) => log.backup(file).await,
            None => Err(DiskFault::Empty { folder: self.config.folder.clone() }),
        }
    }

    /// A number that is equal on all nodes with the same index, and that index.
    #[must_use]
    pub fn digest(&self) -> (u128, Option<u64>) {
        let none = || (State::new().digest().to_u128(), None);
        self.log.get().map_or_else(none, Consensus::digest)
    }

    /// Hands over the lead and stops taking part.
    pub async fn shutdown(&self) {
        self.stop.cancel();
        self.tasks.wait().await;
        self.link.open_gate(None);
        self.hand_over().await;
        if let Some(log) = self.log.get() {
            log.shutdown().await;
        }
    }

    pub(crate) fn look<R>(&self, look: impl FnOnce(&State) -> R) -> R {
        match self.log.get() {
            Some(log) => log.look(|replica| look(replica.state())),
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
            stamp_ms: now_ms(),
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

/// Milliseconds since 1970.
pub(crate) fn now_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

impl Drop for Agreement {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

impl fmt::Debug for Agreement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Agreement").field("node", &self.config.name).finish_non_exhaustive()
    }
}
