//! One node's part in the cluster.

use std::fmt;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use arc_swap::ArcSwap;
use spillway_consensus::{
    ChangeError, Config, Consensus, Consistency, DiskFault, ProposeError, Proposed, Read,
    ReadError, StartFault, Status, Timing, Urgency, owner_of, seed_ids,
};
use spillway_control::{
    Actor, ChangeDiff, Command, Entry, Fault, Outcome, Proposer, RequestId, State, admits, dry_run,
};
use spillway_link::Link;
use spillway_types::{NodeName, RegionName};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::changes::{Changed, History, TooOld};
use crate::config::AgreementConfig;
use crate::machine::Replica;
use crate::{formation, membership, publish};

/// How long handing over the lead may take when a node ends.
const HAND_OVER_LIMIT: Duration = Duration::from_secs(3);

/// One node's part in the cluster: the replicated state, and how it is changed.
pub struct Agreement {
    pub(crate) config: AgreementConfig,
    pub(crate) log: Consensus<Replica>,
    pub(crate) link: Arc<Link>,
    history: Arc<Mutex<History>>,
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
        let known = owner_of(&config.folder)?.map(|owner| owner.node);
        let by_seed = || seed_ids(&config.seeds).get(&config.name).copied();
        let not_a_seed = || {
            StartFault::Config(format!(
                "{} is not among the nodes that form the cluster, and its folder is empty",
                config.name
            ))
        };
        let node = known.or_else(by_seed).ok_or_else(not_a_seed)?;
        let mut log_config =
            Config::new(node, config.name.clone(), config.region.clone(), config.folder.clone());
        log_config.timing = Timing::for_rtt(config.rtt_max);
        let history = Arc::<Mutex<History>>::default();
        let machine = Replica::new(Arc::clone(&history));
        let log = Consensus::start(log_config, Arc::clone(&link), machine).await?;
        let agreement = Arc::new(Self {
            config,
            log,
            link,
            history,
            published: ArcSwap::default(),
            published_index: watch::Sender::new(0),
            tasks: TaskTracker::new(),
            stop: CancellationToken::new(),
        });
        agreement.spawn(formation::run);
        agreement.spawn(membership::run);
        agreement.spawn(publish::run);
        agreement.tasks.close();
        Ok(agreement)
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
    /// or there, at most for `limit`. With a `request` a repetition does nothing twice.
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
        let urgency = match (&actor, command.is_routine()) {
            (Actor::Node, true) => Urgency::Health,
            _ => Urgency::Operator,
        };
        self.log.propose(&self.entry(command, actor, request), urgency, limit).await
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
        self.log.read(consistency, limit, |replica| look(replica.state())).await
    }

    /// The state some moments ago, at most 100 ms behind what is applied here. Never waits.
    #[must_use]
    pub fn published(&self) -> Arc<State> {
        self.published.load_full()
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
        self.log.status()
    }

    /// The node that may lead.
    #[must_use]
    pub fn leader(&self) -> Option<(NodeName, RegionName)> {
        let status = self.log.status();
        let member = status.members.get(&status.leader?)?;
        Some((member.name.clone(), member.region.clone()))
    }

    /// How far the state has come: the index after the last entry, told on each change.
    #[must_use]
    pub fn applied(&self) -> watch::Receiver<u64> {
        self.log.applied()
    }

    /// What entries after `index` changed.
    ///
    /// # Errors
    /// If that is forgotten.
    pub fn changes_after(&self, index: u64) -> Result<Vec<Changed>, TooOld> {
        self.history.lock().unwrap_or_else(PoisonError::into_inner).after(index)
    }

    /// Hands the lead to another node.
    ///
    /// # Errors
    /// If this node does not lead, or the other has no vote or does not take over in `limit`.
    pub async fn transfer_leader(&self, to: &NodeName, limit: Duration) -> Result<(), ChangeError> {
        let members = self.log.status().members;
        let found = members.iter().find(|(_, member)| member.name == *to);
        let unknown = || ChangeError::Refused(NoSuchNode(to.clone()).to_string());
        let (id, _) = found.ok_or_else(unknown)?;
        self.log.transfer_leader(*id, limit).await
    }

    /// Writes the state into one file.
    ///
    /// # Errors
    /// If it can't be written.
    pub async fn backup(&self, file: &Path) -> Result<(), DiskFault> {
        self.log.backup(file).await
    }

    /// A number that is equal on all nodes with the same index, and that index.
    #[must_use]
    pub fn digest(&self) -> (u128, Option<u64>) {
        self.log.digest()
    }

    /// Hands over the lead and stops taking part.
    pub async fn shutdown(&self) {
        self.stop.cancel();
        self.tasks.wait().await;
        let status = self.log.status();
        let leads = status.leader == Some(status.node);
        let heir = status.voters.iter().find(|id| **id != status.node).filter(|_| leads);
        if let Some(heir) = heir
            && let Err(error) = self.log.transfer_leader(*heir, HAND_OVER_LIMIT).await
        {
            tracing::info!(%error, "the lead was not handed over");
        }
        self.log.shutdown().await;
    }

    pub(crate) fn look<R>(&self, look: impl FnOnce(&State) -> R) -> R {
        self.log.look(|replica| look(replica.state()))
    }

    pub(crate) fn entry(
        &self,
        command: Command,
        actor: Actor,
        request: Option<RequestId>,
    ) -> Entry {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Entry {
            stamp_ms: u64::try_from(since.as_millis()).unwrap_or(u64::MAX),
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
