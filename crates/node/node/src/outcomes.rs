//! Outcomes of requests: drained from the workers' queues to metrics, traces, logs, usage and health.

use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use spillway_admin::{RequestFilter, Requests};
use spillway_proxy::Worker;
use spillway_request::gateway::Switches;
use spillway_telemetry::Metrics;
use spillway_traces::{Traces, TracesConfig};
use spillway_types::RequestEntry;
use spillway_usage::{UsageLine, UsageQuery, UsageTable};
use tokio_util::sync::CancellationToken;

use crate::health_watch::NodeHealth;
use crate::requests::RequestLog;
use crate::rollouts::RolloutCounts;
use crate::usage::Usage;

/// Period of emptying the queues: rarely enough to cost nothing, often enough that a queue of
/// 16,384 outcomes takes 160,000 requests per second on one worker to overflow.
const INTERVAL: Duration = Duration::from_millis(100);

/// The workers' queues of outcomes, and what they feed.
#[derive(Debug)]
pub(crate) struct Outcomes {
    pub(crate) workers: Vec<Arc<Worker>>,
    pub(crate) metrics: Arc<Metrics>,
    /// Requests that ended last, and their log.
    pub(crate) requests: RequestLog,
    /// Spans of requests, for a collector.
    pub(crate) traces: Traces,
    /// Usage of clients, by day.
    pub(crate) usage: Arc<Usage>,
    /// Health of the node.
    pub(crate) health: Arc<NodeHealth>,
    /// Figures of the arms of rollouts.
    pub(crate) rollouts: Arc<RolloutCounts>,
}

impl Outcomes {
    /// Empties the queues periodically until `stop` is cancelled, and a last time then.
    pub(crate) async fn run(self: Arc<Self>, stop: CancellationToken) {
        let mut interval = tokio::time::interval(INTERVAL);
        loop {
            tokio::select! {
                _ = interval.tick() => self.collect(),
                () = stop.cancelled() => return self.collect(),
            }
        }
    }

    /// Takes in every outcome up to now.
    pub(crate) fn collect(&self) {
        let now = (Instant::now(), SystemTime::now());
        let mut counting = self.health.counting(now.0);
        let mut arms = self.rollouts.counting();
        for worker in &self.workers {
            worker.drain_outcomes(|mut outcome| {
                if self.traces.add(&outcome, now)
                    && let Some(trace) = &mut outcome.trace
                {
                    trace.is_sampled = true;
                }
                counting.add(&outcome);
                arms.add(&outcome);
                let cost = self.usage.record(&outcome, now.1);
                self.metrics.record(&outcome, cost.client);
                if let Some(cost) = cost.overflow {
                    self.metrics.record_overflow(&outcome, cost);
                }
                self.requests.add(outcome, now);
            });
        }
        drop((counting, arms));
        self.usage.judge(now.1);
    }

    /// Returns the usage of tenants and keys since the start, with every outcome up to now.
    pub(crate) fn usage_since_start(&self) -> Vec<UsageLine> {
        self.collect();
        self.metrics.usage()
    }

    /// Answers a question about the usage of this node, with every outcome up to now.
    pub(crate) async fn usage_of(self: Arc<Self>, query: UsageQuery) -> UsageTable {
        // Reading days that are over takes files.
        let reading = tokio::task::spawn_blocking(move || {
            self.collect();
            self.usage.read(&query)
        });
        reading.await.unwrap_or_default()
    }

    /// Sends traces by these settings from now on; none without them.
    pub(crate) fn set_traces(&self, config: Option<&TracesConfig>, switches: &Switches) {
        let share = config.map_or(0.0, |config| config.share_percent / 100.0);
        switches.set_trace_share(share);
        self.traces.set(config);
    }
}

impl Requests for Outcomes {
    fn recent(&self, filter: &RequestFilter, limit: usize) -> Vec<RequestEntry> {
        // A client that has just read a reply may ask for its entry.
        self.collect();
        self.requests.recent(filter, limit)
    }
}
