//! Start of a node's part in the control plane, and of its tasks.

use std::sync::{Arc, OnceLock, Weak};

use arc_swap::{ArcSwap, ArcSwapOption};
use spillway_link::{Link, PeerConfig};
use spillway_raft::{
    Consensus, DiskId, NodeId, RaftConfig, RaftStartError, Timing, discard_blank, owner_of,
};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::beginning::Beginning;
use crate::config::ControlPlaneConfig;
use crate::control_plane::ControlPlane;
use crate::machine::StateMachine;
use crate::{clock, formation, join, membership, publish};

impl ControlPlane {
    /// Opens the folder and takes part from then on. If there is no cluster yet, forms it with the
    /// other seeds. Returns before that is done. Needs a tokio runtime.
    ///
    /// # Errors
    /// Returns an error if the config has no way to begin, or if the folder can't be used.
    pub async fn start(
        config: ControlPlaneConfig,
        link: Arc<Link>,
    ) -> Result<Arc<Self>, RaftStartError> {
        let beginning = Beginning::of(&config)?;
        let contacts = link.peers().into_iter().map(|peer| PeerConfig {
            identity: peer.identity,
            address: peer.address,
            rtt_ms: None,
        });
        let mut control_plane = Self {
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
        let control_plane = match beginning {
            Beginning::Joining(disk) => {
                control_plane.disk = disk;
                // The peers don't know this node yet, and would refuse its connections again and
                // again.
                control_plane.link.set_peers(Vec::new());
                let control_plane = Arc::new(control_plane);
                control_plane.spawn(join::run);
                control_plane
            }
            Beginning::Numbered(node) => {
                let log = Box::pin(control_plane.open_log(node, None)).await?;
                control_plane.disk = log.disk();
                control_plane.log = OnceLock::from(log);
                let control_plane = Arc::new(control_plane);
                control_plane.take_part();
                control_plane
            }
        };
        let join_server = join::JoinServer(Arc::downgrade(&control_plane));
        control_plane.link.serve_joins(Some(Arc::new(join_server)));
        control_plane.tasks.close();
        Ok(control_plane)
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
        config.timing = Timing::for_rtt(self.config.rtt_max);
        config.compaction = crate::config::compaction();
        let machine = StateMachine::new(Arc::clone(&self.history), Arc::clone(&self.hints));
        Consensus::start(config, Arc::clone(&self.link), machine).await
    }

    /// Opens the log of a node that has just been given its number.
    pub(crate) async fn begin(&self, node: NodeId) -> Result<(), RaftStartError> {
        let folder = &self.config.folder;
        if owner_of(folder)?.is_some_and(|owner| owner.node != node) {
            // This node was begun as a seed, and the cluster was formed without it.
            discard_blank(folder)?;
        }
        let log = Box::pin(self.open_log(node, Some(self.disk))).await?;
        log.vouch(self.met().iter().map(|peer| peer.identity.node().clone()));
        // Cannot fail: a single task sets the log, and only once.
        drop(self.log.set(log));
        Ok(())
    }

    /// Starts the tasks of a node that has a log.
    pub(crate) fn take_part(self: &Arc<Self>) {
        self.spawn(formation::run);
        self.spawn(membership::run);
        self.spawn(publish::run);
        self.spawn(clock::run);
        self.spawn(join::watch_standing);
    }

    /// Runs a task until the node stops or the last handle is gone.
    fn spawn<F>(self: &Arc<Self>, task: impl FnOnce(Weak<Self>) -> F)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let (stop, task) = (self.stop.clone(), task(Arc::downgrade(self)));
        self.tasks.spawn(async move {
            stop.run_until_cancelled(task).await;
        });
    }
}
