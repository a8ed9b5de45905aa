//! Monitors of all replicas.

use std::collections::BTreeMap;

use spillway_types::ReplicaName;
use tokio::runtime::Handle;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::{Monitor, Surroundings};
use crate::fact::FactSender;
use crate::target::ReplicaTarget;

/// Set of monitors, one for each replica of a set that changes.
#[derive(Debug)]
pub struct Monitors {
    around: Surroundings,
    running: BTreeMap<ReplicaName, Monitor>,
    stop: CancellationToken,
}

/// Changes by a new set of targets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reconciled {
    /// Number of monitors that continue unchanged.
    pub kept: usize,
    /// Number of monitors that were started, for new and changed replicas.
    pub started: usize,
    /// Number of monitors that were ended, for removed and changed replicas.
    pub ended: usize,
}

impl Monitors {
    /// Makes an empty set. The tasks will run on `runtime`, which must not be one of the data path;
    /// `seed` is for their jitter.
    #[must_use]
    pub fn new(facts: FactSender, runtime: Handle, seed: u64) -> Self {
        let around = Surroundings { facts, runtime, tasks: TaskTracker::new(), seed };
        Self { around, running: BTreeMap::new(), stop: CancellationToken::new() }
    }

    /// Watches exactly these targets from now on. A monitor with an equal target continues without
    /// a break; of several targets with one name the last counts.
    pub fn reconcile(&mut self, targets: Vec<ReplicaTarget>) -> Reconciled {
        let targets: BTreeMap<_, _> =
            targets.into_iter().map(|target| (target.replica.clone(), target)).collect();
        let before = self.running.len();
        // A changed target needs a new monitor; the drop of the old one ends its task.
        self.running.retain(|name, monitor| targets.get(name) == Some(monitor.target()));
        let kept = self.running.len();
        for (name, target) in targets {
            let (around, stop) = (&self.around, &self.stop);
            self.running.entry(name).or_insert_with(|| Monitor::start_in(around, target, stop));
        }
        Reconciled { kept, started: self.running.len() - kept, ended: before - kept }
    }

    /// Runs the identity check of a replica at once, e.g. because it has come back.
    pub fn identify_again(&self, replica: &ReplicaName) {
        if let Some(monitor) = self.running.get(replica) {
            monitor.identify_again();
        }
    }

    /// Reads the models of a replica at once. Returns false if the replica is not watched.
    pub fn read_models_again(&self, replica: &ReplicaName) -> bool {
        let monitor = self.running.get(replica);
        monitor.map(Monitor::read_models_again).is_some()
    }

    /// Returns the number of watched replicas.
    #[must_use]
    pub fn len(&self) -> usize {
        self.running.len()
    }

    /// Returns true if no replica is watched.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.running.is_empty()
    }

    /// Ends all tasks and waits for their end.
    pub async fn shutdown(self) {
        self.stop.cancel();
        self.around.tasks.close();
        self.around.tasks.wait().await;
    }
}
