//! Adaptive concurrency limits: finds the number of requests that each replica should have at a
//! time, where none is configured.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use spillway_config::{Concurrency, ReplicaConfig};
use spillway_proxy::{ConcurrencySeen, Replica};
use spillway_route::{ConcurrencyLimit, ConcurrencyTuning, LoadSample, QueueSample};
use spillway_types::{LoadReport, ReplicaName};

/// Lifetime of a report on the queue, in multiples of the time since the report before, and at
/// least [`REPORT_COUNTS_MIN`]: a page that is late once does not make a server one without
/// reports.
const REPORT_COUNTS: u32 = 3;
const REPORT_COUNTS_MIN: Duration = Duration::from_secs(5);

/// Adaptive limits, by replica.
#[derive(Debug, Default)]
pub(super) struct ReplicaLimits {
    found: BTreeMap<ReplicaName, FoundLimit>,
}

/// Adaptive limit of one replica.
#[derive(Debug)]
struct FoundLimit {
    replica: Arc<Replica>,
    limit: ConcurrencyLimit,
    told: Option<QueueReport>,
}

/// Newest report of a replica on its queue.
#[derive(Clone, Copy, Debug)]
struct QueueReport {
    queued: f32,
    running: Option<f32>,
    at: Instant,
    /// Time since the report before.
    gap: Duration,
    is_new: bool,
}

impl ReplicaLimits {
    /// Takes over the replicas with an adaptive limit. The state of one that is still there stays.
    pub(super) fn reconcile(
        &mut self,
        configs: &[ReplicaConfig],
        replicas: &BTreeMap<ReplicaName, Arc<Replica>>,
    ) {
        let mut before = std::mem::take(&mut self.found);
        for config in configs {
            let name = &config.spec.name;
            let Some(replica) = replicas.get(name) else { continue };
            if config.care.concurrency != Concurrency::Adaptive {
                // A limit that was found under an earlier config holds no more.
                replica.set_concurrency_limit(None, false);
                continue;
            }
            // Another server under this name has to find its own limit.
            let kept = before.remove(name).filter(|kept| kept.replica.is_same_server(replica));
            let kept = kept.map(|kept| FoundLimit { replica: Arc::clone(replica), ..kept });
            let found = kept.unwrap_or_else(|| FoundLimit::new(replica));
            found.publish();
            self.found.insert(name.clone(), found);
        }
    }

    /// Notes a load report of a replica.
    pub(super) fn reported(&mut self, replica: &ReplicaName, report: &LoadReport, at: Instant) {
        let Some(found) = self.found.get_mut(replica) else { return };
        let sound = |number: f32| number.is_finite() && number >= 0.0;
        let Some(queued) = report.queued.filter(|queued| sound(*queued)) else { return };
        let running = report.running.filter(|running| sound(*running));
        let before = found.told.map(|told| at.saturating_duration_since(told.at));
        let gap = before.unwrap_or_default();
        found.told = Some(QueueReport { queued, running, at, gap, is_new: true });
    }

    /// Updates all limits by what was seen since the last look, and publishes them to the data
    /// path.
    pub(super) fn look(&mut self, now: Instant) {
        self.found.values_mut().for_each(|found| found.look(now));
    }
}

impl FoundLimit {
    fn new(replica: &Arc<Replica>) -> Self {
        let most = replica.spec().in_flight_max;
        let tuning = ConcurrencyTuning::default();
        let tuning = ConcurrencyTuning { max: tuning.max.min(most), ..tuning };
        let limit = ConcurrencyLimit::new(tuning);
        // Drops what was counted before: it says nothing of the time from now on.
        let _: ConcurrencySeen = replica.take_concurrency();
        Self { replica: Arc::clone(replica), limit, told: None }
    }

    fn look(&mut self, now: Instant) {
        let crowd = self.replica.take_concurrency();
        let seen = LoadSample {
            in_flight: crowd.in_flight,
            elsewhere: crowd.elsewhere,
            wanted_elsewhere: crowd.wanted_elsewhere,
            allowed: crowd.allowed,
            unbegun: crowd.unbegun,
            queue: self.queue(now),
            began: crowd.began,
            first_token: crowd.first_token,
        };
        self.limit.update(&seen, now);
        self.publish();
    }

    fn queue(&mut self, now: Instant) -> QueueSample {
        let Some(told) = &mut self.told else { return QueueSample::Untold };
        let counts = told.gap.saturating_mul(REPORT_COUNTS).max(REPORT_COUNTS_MIN);
        let QueueReport { queued, running, .. } = *told;
        if now.saturating_duration_since(told.at) > counts {
            self.told = None;
            QueueSample::Untold
        } else if std::mem::take(&mut told.is_new) {
            QueueSample::New { queued, running }
        } else {
            QueueSample::Old
        }
    }

    fn publish(&self) {
        self.replica.set_concurrency_limit(Some(self.limit.limit()), self.limit.is_found());
    }
}

#[cfg(test)]
#[path = "limits_test.rs"]
mod tests;
