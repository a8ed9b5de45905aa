//! Monitors: one task for each replica, which asks the replica and sends facts about it.

mod monitors;
mod watch;

use std::sync::Arc;

use tokio::runtime::Handle;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

pub use monitors::{Monitors, Reconciled};

use crate::fact::FactSender;
use crate::target::ReplicaTarget;
use watch::ReplicaWatch;

/// Task that watches one replica. A drop ends the task.
#[derive(Debug)]
pub struct Monitor {
    target: Arc<ReplicaTarget>,
    again: Arc<Notify>,
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
        let again = Arc::new(Notify::new());
        let facts = around.facts.clone();
        let watch = ReplicaWatch::new(Arc::clone(&target), facts, around.seed, Arc::clone(&again));
        let until = stop.clone();
        let task = async move {
            // A check under way is dropped, which closes its connection.
            let _: Option<()> = until.run_until_cancelled(watch.run()).await;
        };
        around.tasks.spawn_on(task, &around.runtime);
        Self { target, again, stop }
    }

    /// Runs the identity check at once, not when it is due.
    pub fn identify_again(&self) {
        self.again.notify_one();
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
