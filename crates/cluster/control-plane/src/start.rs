//! Start of a node's part in the control plane, and of its tasks.

use std::pin::Pin;
use std::sync::{Arc, OnceLock, PoisonError, Weak};
use std::time::{Duration, Instant};

use arc_swap::{ArcSwap, ArcSwapOption};
use spillway_link::{Link, PeerConfig};
use spillway_raft::{
    Consensus, DiskClock, DiskError, DiskId, NodeId, RaftConfig, RaftStartError, Timing,
    discard_blank, owner_of,
};
use tokio::sync::watch;
use tokio::task::spawn_blocking;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::beginning::Beginning;
use crate::config::ControlPlaneConfig;
use crate::control_plane::ControlPlane;
use crate::machine::StateMachine;
use crate::{clock, formation, join, log_keeper, membership, publish};

/// Time for which the start waits for the disk. A log as long as one gets is read in less.
const START_LIMIT: Duration = Duration::from_secs(10);

/// Attempt to open the log, or to join.
pub(crate) type TakingUp = Pin<Box<dyn Future<Output = Result<(), RaftStartError>> + Send>>;

impl ControlPlane {
    /// Opens the folder and takes part from then on. If there is no cluster yet, forms it with the
    /// other seeds. Returns before that is done. A folder that can't be used now, whose log is damaged
    /// or whose disk does not answer, is tried again later: until then the node has a log that has
    /// stopped. Needs a tokio runtime.
    ///
    /// # Errors
    /// Returns an error if the config has no way to begin, or if the folder is another node's.
    pub async fn start(
        config: ControlPlaneConfig,
        link: Arc<Link>,
    ) -> Result<Arc<Self>, RaftStartError> {
        let contacts = link.peers().into_iter().map(|peer| PeerConfig {
            identity: peer.identity,
            address: peer.address,
            rtt_ms: None,
        });
        let control_plane = Arc::new(Self {
            config,
            log: ArcSwapOption::empty(),
            halted: ArcSwapOption::empty(),
            started: Instant::now(),
            disk_clock: Arc::default(),
            joins_as: OnceLock::new(),
            applied: watch::Sender::new(0),
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
        });
        let mut taking_up = control_plane.taking_up();
        match timeout(START_LIMIT, &mut taking_up).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) if is_final(&error) => return Err(error),
            Ok(Err(error)) => {
                control_plane.halt(&error);
                control_plane.spawn(|this| log_keeper::begin(this, None));
            }
            Err(_) => {
                control_plane.halt(&DiskError::hanging("opening the log", START_LIMIT));
                control_plane.spawn(|this| log_keeper::begin(this, Some(taking_up)));
            }
        }
        let join_server = join::JoinServer(Arc::downgrade(&control_plane));
        control_plane.link.serve_joins(Some(Arc::new(join_server)));
        control_plane.tasks.close();
        Ok(control_plane)
    }

    /// Opens the log, or asks to join a running cluster, depending on the folder and the config.
    pub(crate) fn taking_up(self: &Arc<Self>) -> TakingUp {
        let this = Arc::clone(self);
        Box::pin(async move { this.take_up().await })
    }

    async fn take_up(self: &Arc<Self>) -> Result<(), RaftStartError> {
        let config = self.config.clone();
        match self.blocking(move || Beginning::of(&config)).await? {
            Beginning::Joining(disk) => {
                // Cannot fail: a node joins once.
                let _ = self.joins_as.set(disk);
                // The peers don't know this node yet, and would refuse its connections again and
                // again.
                self.link.set_peers(Vec::new());
                self.spawn(join::run);
            }
            Beginning::Numbered(node) => {
                let log = Box::pin(self.open_log(node, None)).await?;
                self.log.store(Some(Arc::new(log)));
                self.take_part();
            }
        }
        Ok(())
    }

    /// Opens the log again after it has stopped, by the code of a start. Its file is closed.
    ///
    /// # Errors
    /// Returns an error if the folder can't be used yet, or does not hold the log of before.
    pub(crate) async fn reopen(
        &self,
        before: &Consensus<StateMachine>,
    ) -> Result<(), RaftStartError> {
        let (node, disk) = (before.status().node, before.disk());
        let folder = self.config.folder.clone();
        let owner = self.blocking(move || owner_of(&folder)).await?;
        // An empty folder would become that of the same disk, and forget what the log has promised.
        if owner.is_none_or(|owner| (owner.node, owner.disk) != (node, disk)) {
            let folder = self.config.folder.clone();
            return Err(DiskError::Replaced { folder }.into());
        }
        let log = Box::pin(self.open_log(node, Some(disk))).await?;
        if let Err(fault) = log.check_disk().await {
            log.shutdown().await;
            // Return the fault of the disk, not the report that the log has stopped because of it.
            let first = match fault {
                DiskError::Stopped(first) => *first,
                fault => fault,
            };
            return Err(first.into());
        }
        log.vouch(self.met().iter().map(|peer| peer.identity.node().clone()));
        self.log.store(Some(Arc::new(log)));
        Ok(())
    }

    /// Opens the log under the number of this node.
    async fn open_log(
        &self,
        node: NodeId,
        disk: Option<DiskId>,
    ) -> Result<Consensus<StateMachine>, RaftStartError> {
        let ControlPlaneConfig { name, region, folder, .. } = &self.config;
        let mut config = RaftConfig::new(node, name.clone(), region.clone(), folder.clone());
        config.disk = disk;
        config.applied = self.applied.clone();
        config.disk_clock = Arc::clone(&self.disk_clock);
        config.timing = Timing::for_rtt(self.config.rtt_max);
        config.compaction = crate::config::compaction();
        config.watch = self.config.watch.clone();
        // The log repeats its entries from its newest snapshot on.
        self.history.lock().unwrap_or_else(PoisonError::into_inner).restart(0);
        let machine = StateMachine::new(Arc::clone(&self.history), Arc::clone(&self.hints));
        Consensus::start(config, Arc::clone(&self.link), machine).await
    }

    /// Opens the log of a node that has just been given its number.
    pub(crate) async fn begin(&self, node: NodeId) -> Result<(), RaftStartError> {
        let folder = self.config.folder.clone();
        self.blocking(move || {
            if owner_of(&folder)?.is_some_and(|owner| owner.node != node) {
                // This node was begun as a seed, and the cluster was formed without it.
                discard_blank(&folder)?;
            }
            Ok::<_, RaftStartError>(())
        })
        .await?;
        let log = Box::pin(self.open_log(node, Some(self.disk()))).await?;
        log.vouch(self.met().iter().map(|peer| peer.identity.node().clone()));
        self.log.store(Some(Arc::new(log)));
        Ok(())
    }

    /// Runs what waits for the disk. A panic of the database over a damaged page is a refusal, too.
    async fn blocking<T: Send + 'static, E>(
        &self,
        work: impl FnOnce() -> Result<T, E> + Send + 'static,
    ) -> Result<T, RaftStartError>
    where
        RaftStartError: From<E>,
        E: Send + 'static,
    {
        let clock: Arc<DiskClock> = Arc::clone(&self.disk_clock);
        let done = spawn_blocking(move || clock.wait(work)).await;
        Ok(done.map_err(|_| DiskError::unreadable())??)
    }

    /// Starts the tasks of a node that has a log.
    pub(crate) fn take_part(self: &Arc<Self>) {
        self.spawn(formation::run);
        self.spawn(membership::run);
        self.spawn(publish::run);
        self.spawn(clock::run);
        self.spawn(join::watch_standing);
        self.spawn(log_keeper::run);
    }

    /// Runs a task until the node stops or the last handle is gone.
    pub(crate) fn spawn<F>(self: &Arc<Self>, task: impl FnOnce(Weak<Self>) -> F)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let (stop, task) = (self.stop.clone(), task(Arc::downgrade(self)));
        let task = async move {
            stop.run_until_cancelled(task).await;
        };
        self.tasks.spawn(self.config.watch.clone().vital("control plane", task));
    }
}

/// Returns true if no other try helps, and the node must not run: its config or its folder is
/// another node's.
fn is_final(error: &RaftStartError) -> bool {
    match error {
        RaftStartError::Config(_) => true,
        RaftStartError::Disk(fault) => fault.is_of_another(),
        RaftStartError::Log(_) => false,
    }
}
