//! Adaptive concurrency limits: finds the number of requests that each replica should have at a
//! time, where none is configured.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

use spillway_config::{Concurrency, ReplicaConfig};
use spillway_health::QueueReports;
use spillway_route::{ConcurrencyLimit, ConcurrencyTuning, LoadSample};
use spillway_types::{LoadReport, ReplicaName};
use spillway_view::{ConcurrencySeen, Replica};

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
    queue: QueueReports,
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
                replica.concurrency().set_guests_unbegun_max(None);
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
        if let Some(found) = self.found.get_mut(replica) {
            found.queue.handle_report(at, report);
        }
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
        Self { replica: Arc::clone(replica), limit, queue: QueueReports::default() }
    }

    fn look(&mut self, now: Instant) {
        let seen = self.replica.take_concurrency();
        let sample = LoadSample {
            in_flight: seen.in_flight,
            elsewhere: seen.elsewhere,
            wanted_elsewhere: seen.wanted_elsewhere,
            allowed: seen.allowed,
            unbegun: seen.unbegun,
            guest_lack: seen.guest_lack,
            queue: self.queue.take_sample(now),
            began: seen.began,
            first_token: seen.first_token,
        };
        self.limit.update(&sample, now);
        self.publish();
    }

    fn publish(&self) {
        self.replica.set_concurrency_limit(Some(self.limit.limit()), self.limit.is_found());
        self.replica.concurrency().set_guests_unbegun_max(self.limit.guests_unbegun_max());
    }
}

#[cfg(test)]
#[path = "limits_test.rs"]
mod tests;
