//! Detection of hung parts of a node, for a service manager that restarts what hangs.
//!
//! Each worker raises a count on its own runtime, which a blocked or spinning thread can't do, and
//! the keeper has to answer. Accepting threads have no count: they wait for nothing but workers.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::time::{MissedTickBehavior, interval, timeout};

use crate::keeper::KeeperHandle;

/// Period of raising a worker's count. Well below any time within which a hang has to be noticed.
const BEAT: Duration = Duration::from_millis(200);

/// A count for each worker, which rises while its runtime gets to run tasks.
#[derive(Debug, Default)]
pub(crate) struct Beats(Vec<AtomicU64>);

impl Beats {
    pub(crate) fn new(workers: usize) -> Arc<Self> {
        Arc::new(Self((0..workers).map(|_| AtomicU64::new(0)).collect()))
    }

    /// Raises the count of `worker` for ever, on the runtime that polls this future.
    pub(crate) async fn beat(self: Arc<Self>, worker: usize) {
        let mut ticks = interval(BEAT);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            if let Some(count) = self.0.get(worker) {
                count.fetch_add(1, Ordering::Relaxed);
            }
        }
    }

    fn read(&self) -> Vec<u64> {
        self.0.iter().map(|count| count.load(Ordering::Relaxed)).collect()
    }
}

/// A part of the node that does not answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Hung {
    /// The worker thread of this number, or the shared runtime.
    Worker(usize),
    /// The task that judges replicas and publishes views.
    Keeper,
}

impl fmt::Display for Hung {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Worker(number) => write!(f, "worker {number}"),
            Self::Keeper => f.write_str("keeper"),
        }
    }
}

/// Finds the parts of a node that hang; goes on to work while the node stops.
#[derive(Debug)]
pub struct Liveness {
    beats: Arc<Beats>,
    /// Counts at the last look.
    seen: Vec<u64>,
    keeper: KeeperHandle,
}

impl Liveness {
    pub(crate) fn new(beats: Arc<Beats>, keeper: KeeperHandle) -> Self {
        Self { seen: beats.read(), beats, keeper }
    }

    /// Returns the parts that hang: workers that ran no task since the last look, and the keeper if
    /// it does not answer within `limit`. Looks have to be at least half a second apart: otherwise
    /// no worker could have run.
    pub async fn hung(&mut self, limit: Duration) -> Vec<Hung> {
        let answered = matches!(timeout(limit, self.keeper.answers()).await, Ok(true));
        let now = self.beats.read();
        let mut hung = standing(&self.seen, &now);
        self.seen = now;
        if !answered {
            hung.push(Hung::Keeper);
        }
        hung
    }
}

/// Returns the workers whose counts did not change.
fn standing(before: &[u64], now: &[u64]) -> Vec<Hung> {
    let pairs = before.iter().zip(now).enumerate();
    pairs.filter(|(_, (before, now))| before == now).map(|(at, _)| Hung::Worker(at)).collect()
}

#[cfg(test)]
mod tests {
    use tokio::sync::mpsc;

    use super::*;
    use crate::keeper::KeeperCommand;

    #[test]
    fn a_worker_whose_count_stands_is_named() {
        assert_eq!(standing(&[1, 5, 9], &[2, 5, 9]), [Hung::Worker(1), Hung::Worker(2)]);
        assert_eq!(standing(&[1, 5], &[2, 6]), []);
        assert_eq!(Hung::Worker(1).to_string(), "worker 1");
    }

    /// Looks until `wanted` are the parts that hang.
    async fn until(liveness: &mut Liveness, wanted: &[Hung]) {
        let by = tokio::time::Instant::now() + Duration::from_secs(60);
        loop {
            // wait: between two looks, in which all beat that can
            tokio::time::sleep(3 * BEAT).await;
            let hung = liveness.hung(BEAT).await;
            if hung == wanted {
                return;
            }
            assert!(tokio::time::Instant::now() < by, "{hung:?} instead of {wanted:?}");
        }
    }

    #[tokio::test]
    async fn a_worker_that_is_not_polled_and_a_keeper_that_does_not_answer_hang() {
        let (commands, mut asked) = mpsc::channel(4);
        let beats = Beats::new(2);
        let mut liveness =
            Liveness::new(Arc::clone(&beats), KeeperHandle::new(commands, Arc::default()));
        let mut parts = tokio::task::JoinSet::new();
        parts.spawn(Arc::clone(&beats).beat(0));
        let second = parts.spawn(Arc::clone(&beats).beat(1));
        let keeper = parts.spawn(async move {
            while let Some(KeeperCommand::Answer { done }) = asked.recv().await {
                done.send(()).unwrap();
            }
        });
        until(&mut liveness, &[]).await;
        second.abort();
        until(&mut liveness, &[Hung::Worker(1)]).await;
        keeper.abort();
        until(&mut liveness, &[Hung::Worker(1), Hung::Keeper]).await;
    }
}
