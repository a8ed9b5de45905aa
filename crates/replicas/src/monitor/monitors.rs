//! The monitors of all replicas.

use std::collections::BTreeMap;

use spillway_types::ReplicaName;
use tokio::runtime::Handle;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::{Monitor, Surroundings};
use crate::fact::FactSender;
use crate::target::Target;

/// One monitor for each replica of a set that changes.
#[derive(Debug)]
pub struct Monitors {
    around: Surroundings,
    running: BTreeMap<ReplicaName, Monitor>,
    stop: CancellationToken,
}

/// What a new set of targets changed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reconciled {
    /// Monitors that went on as they were.
    pub kept: usize,
    /// Monitors that began, of new replicas and of changed ones.
    pub started: usize,
    /// Monitors that ended, of gone replicas and of changed ones.
    pub ended: usize,
}

impl Monitors {
    /// None yet. Their tasks will run on `runtime`, which must not be one of the data path; `seed`
    /// is for their jitter.
    #[must_use]
    pub fn new(facts: FactSender, runtime: Handle, seed: u64) -> Self {
        let around = Surroundings { facts, runtime, tasks: TaskTracker::new(), seed };
        Self { around, running: BTreeMap::new(), stop: CancellationToken::new() }
    }

    /// Watches exactly these from now on. A target that is equal to the one of its replica before
    /// goes on without a break; of several with one name the last counts.
    pub fn reconcile(&mut self, targets: Vec<Target>) -> Reconciled {
        let targets: BTreeMap<_, _> =
            targets.into_iter().map(|target| (target.replica.clone(), target)).collect();
        let before = self.running.len();
        self.running.retain(|name, monitor| targets.get(name) == Some(monitor.target()));
        let kept = self.running.len();
        for (name, target) in targets {
            let (around, stop) = (&self.around, &self.stop);
            self.running.entry(name).or_insert_with(|| Monitor::start_in(around, target, stop));
        }
        Reconciled { kept, started: self.running.len() - kept, ended: before - kept }
    }

    /// Asks a replica at once which software it is and which models it serves, e.g. since it has come back.
    pub fn identify_again(&self, replica: &ReplicaName) {
        if let Some(monitor) = self.running.get(replica) {
            monitor.identify_again();
        }
    }

    /// How many replicas are watched.
    #[must_use]
    pub fn len(&self) -> usize {
        self.running.len()
    }

    /// Whether none is.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.running.is_empty()
    }

    /// Ends all tasks and waits until they are gone.
    pub async fn shutdown(self) {
        self.stop.cancel();
        self.around.tasks.close();
        self.around.tasks.wait().await;
    }
}
