//! Worker: its place in the pools and its queues of outcomes, signs and feedback.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crossbeam_queue::ArrayQueue;
use spillway_request::gateway::Gateway;
use spillway_types::{Outcome, Sign, SignFault, SignKind};
use spillway_upstream::WorkerPools;
use spillway_view::{Learning, Replica};

/// Most outcomes between two visits of the feedback task.
const OUTCOMES_MAX: usize = 16_384;
/// Most signs between two visits. A request leaves two or three, and visits are 100 ms apart, so this
/// takes 27,000 requests a second on one worker to overflow, which costs no more than old signs. It
/// is 0.9 MiB a worker from the start, idle or not.
const SIGNS_MAX: usize = 8_192;
/// Most feedback between two visits: one for each attempt and one for each reply. At most 0.4 MiB
/// a worker, without the blocks, which the requests' records hold as well.
pub(crate) const LEARNINGS_MAX: usize = 8_192;
/// Interval at which idle connections are checked: a connection past its idle time is closed at
/// most this much later.
const SWEEP_INTERVAL: Duration = Duration::from_millis(500);

/// Most signs of unasked bytes from one replica between two sweeps.
const UNASKED_SIGNS_MAX: u64 = 16;

/// Accept-and-serve unit, usually one per core.
#[derive(Debug)]
pub struct Worker {
    pub(crate) id: usize,
    pub(crate) gateway: Arc<Gateway>,
    outcomes: ArrayQueue<Box<Outcome>>,
    outcomes_dropped: AtomicU64,
    signs: ArrayQueue<Sign>,
    learnings: ArrayQueue<Learning>,
    learnings_dropped: AtomicU64,
}

impl Worker {
    /// Returns worker number `id` of `gateway`.
    #[must_use]
    pub fn new(id: usize, gateway: Arc<Gateway>) -> Self {
        Self {
            id,
            gateway,
            outcomes: ArrayQueue::new(OUTCOMES_MAX),
            outcomes_dropped: AtomicU64::new(0),
            signs: ArrayQueue::new(SIGNS_MAX),
            learnings: ArrayQueue::new(LEARNINGS_MAX),
            learnings_dropped: AtomicU64::new(0),
        }
    }

    /// Returns this worker's pools at the replicas.
    pub(crate) fn pools(&self) -> WorkerPools<'_> {
        WorkerPools { worker: self.id, background: &self.gateway.background }
    }

    /// Closes this worker's expired idle connections to replicas, until the gateway drains.
    pub async fn sweep_loop(self: Arc<Self>) {
        let mut interval = tokio::time::interval(SWEEP_INTERVAL);
        loop {
            tokio::select! {
                _ = interval.tick() => {}
                () = self.gateway.door.draining().cancelled() => return,
            }
            let now = Instant::now();
            for replica in self.gateway.routing.view().replicas() {
                replica.connections().sweep(self.id, now);
                self.report_unasked(replica, now);
            }
        }
    }

    /// Reports bytes that no request had asked for as faults of their replica.
    fn report_unasked(&self, replica: &Replica, at: Instant) {
        let replica_name = &replica.spec().name;
        let times = replica.connections().take_unasked();
        if times == 0 {
            return;
        }
        tracing::warn!(
            replica = %replica_name,
            times,
            "bytes on kept connections that no request had asked for: its idle connections were closed"
        );
        for _ in 0..times.min(UNASKED_SIGNS_MAX) {
            let kind = SignKind::Failed(SignFault::BadReply);
            self.sign(Sign { replica: replica_name.clone(), model: None, at, kind });
        }
    }

    /// Takes the outcomes since the last call, oldest first.
    pub fn drain_outcomes(&self, mut record: impl FnMut(Outcome)) {
        // Bounded by what the queue can hold, so that a busy worker can't keep the caller for ever.
        for _ in 0..OUTCOMES_MAX {
            let Some(outcome) = self.outcomes.pop() else { return };
            record(*outcome);
        }
    }

    /// Takes the signs since the last call, oldest first.
    pub fn drain_signs(&self, mut note: impl FnMut(Sign)) {
        for _ in 0..SIGNS_MAX {
            let Some(sign) = self.signs.pop() else { return };
            note(sign);
        }
    }

    /// Takes the feedback since the last call, oldest first. Returns how many there were.
    ///
    /// Call it soon after `learned` of the gateway's knowledge returns.
    pub fn drain_learnings(&self, learn: impl FnMut(Learning)) -> usize {
        // With a limit, since more may come all the time.
        std::iter::from_fn(|| self.learnings.pop()).take(LEARNINGS_MAX).map(learn).count()
    }

    /// Returns the number of feedback since start that found the queue full.
    #[must_use]
    pub fn learnings_dropped(&self) -> u64 {
        self.learnings_dropped.load(Ordering::Relaxed)
    }

    /// Returns the number of outcomes since start that found the queue full.
    #[must_use]
    pub fn outcomes_dropped(&self) -> u64 {
        self.outcomes_dropped.load(Ordering::Relaxed)
    }

    /// Queues a sign for the health check of replicas; never blocks. A full queue drops its oldest
    /// sign: what replicas do now matters more.
    pub(crate) fn sign(&self, sign: Sign) {
        drop(self.signs.force_push(sign));
    }

    /// Queues a feedback for the prefix index and the latency models; never blocks. A full queue
    /// drops the feedback: decisions then know slightly less.
    pub(crate) fn teach(&self, learning: Learning) {
        if self.learnings.push(learning).is_err() {
            self.learnings_dropped.fetch_add(1, Ordering::Relaxed);
        }
        self.gateway.routing.knowledge.wake();
    }

    /// Queues an outcome for the feedback task; never blocks.
    pub(crate) fn leave(&self, outcome: Box<Outcome>) {
        if self.outcomes.push(outcome).is_err() {
            self.outcomes_dropped.fetch_add(1, Ordering::Relaxed);
        }
    }
}
