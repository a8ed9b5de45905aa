//! Brings outcomes from the workers' queues to the metrics.

use std::sync::Arc;
use std::time::Duration;

use spillway_proxy::{Gateway, Worker};
use spillway_telemetry::{Live, LiveReplica, Metrics};
use tokio_util::sync::CancellationToken;

/// How often the queues are emptied: rarely enough to cost nothing, often enough that a queue of
/// 16,384 outcomes takes 160,000 requests a second on one worker to overflow.
const INTERVAL: Duration = Duration::from_millis(100);

/// The workers' queues and where they lead.
#[derive(Debug)]
pub(crate) struct Feedback {
    pub(crate) gateway: Arc<Gateway>,
    pub(crate) workers: Vec<Arc<Worker>>,
    pub(crate) metrics: Metrics,
}

impl Feedback {
    /// Empties the queues until told to stop, and once more then.
    pub(crate) async fn run(self: Arc<Self>, stop: CancellationToken) {
        let mut interval = tokio::time::interval(INTERVAL);
        loop {
            tokio::select! {
                _ = interval.tick() => self.collect(),
                () = stop.cancelled() => return self.collect(),
            }
        }
    }

    /// The metrics as text, with every outcome left so far.
    pub(crate) fn scrape(&self) -> String {
        self.collect();
        self.metrics.scrape(&self.live())
    }

    fn collect(&self) {
        for worker in &self.workers {
            worker.drain_outcomes(|outcome| self.metrics.record(&outcome));
        }
    }

    fn live(&self) -> Live {
        let counters = self.gateway.counters();
        let view = self.gateway.view();
        let replicas = view.replicas().iter().map(|replica| LiveReplica {
            name: replica.spec().name.to_string(),
            in_flight: u64::from(replica.in_flight()),
            connections: u64::from(replica.connections()),
        });
        Live {
            replicas: replicas.collect(),
            client_connections: counters.connections(),
            body_bytes: counters.body_bytes(),
            connections_closed: counters.connections_closed(),
            outcomes_dropped: self.workers.iter().map(|worker| worker.outcomes_dropped()).sum(),
            retries_refused: counters.retries_refused(),
        }
    }
}
