//! Monitors: one task for each replica, which asks the replica and sends facts about it.

mod monitors;
mod wakers;
mod watch;

use std::sync::Arc;

use spillway_tasks::restarted;
use tokio::runtime::Handle;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

pub use monitors::{Monitors, Reconciled};

use crate::fact::FactSender;
use crate::target::ReplicaTarget;
use wakers::Wakers;
use watch::ReplicaWatch;

/// Task that watches one replica. A drop ends the task.
#[derive(Debug)]
pub struct Monitor {
    target: Arc<ReplicaTarget>,
    wakers: Arc<Wakers>,
    stop: CancellationToken,
}

/// Channel, runtime and settings that all monitors share.
#[derive(Clone, Debug)]
pub(crate) struct Surroundings {
    pub(crate) facts: FactSender,
    pub(crate) runtime: Handle,
    pub(crate) tasks: TaskTracker,
    /// Seed of the jitter; the pauses of a replica are drawn from this and its name.
    pub(crate) seed: u64,
}

impl Monitor {
    /// Starts to watch `target`, on the runtime of the caller, until `stop` or until the monitor is
    /// dropped.
    #[must_use]
    pub fn start(
        target: ReplicaTarget,
        facts: FactSender,
        tasks: &TaskTracker,
        seed: u64,
        stop: &CancellationToken,
    ) -> Self {
        let runtime = Handle::current();
        Self::start_in(&Surroundings { facts, runtime, tasks: tasks.clone(), seed }, target, stop)
    }

    fn start_in(around: &Surroundings, target: ReplicaTarget, stop: &CancellationToken) -> Self {
        let target = Arc::new(target);
        let stop = stop.child_token();
        let wakers = Arc::<Wakers>::default();
        let (facts, seed) = (around.facts.clone(), around.seed);
        let (watched, woken) = (Arc::clone(&target), Arc::clone(&wakers));
        let watching = restarted("monitor", move || {
            let (target, wakers) = (Arc::clone(&watched), Arc::clone(&woken));
            ReplicaWatch::new(target, facts.clone(), seed, wakers).run()
        });
        let until = stop.clone();
        let task = async move {
            // A check under way is dropped, which closes its connection.
            let _: Option<()> = until.run_until_cancelled(watching).await;
        };
        around.tasks.spawn_on(task, &around.runtime);
        Self { target, wakers, stop }
    }

    /// Runs the identity check at once, not when it is due.
    pub fn identify_again(&self) {
        self.wakers.identify();
    }

    /// Reads the models at once, not when they are due.
    pub fn read_models_again(&self) {
        self.wakers.read_models();
    }

    /// Returns the target of the monitor.
    #[must_use]
    pub fn target(&self) -> &ReplicaTarget {
        &self.target
    }
}

impl Drop for Monitor {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}
