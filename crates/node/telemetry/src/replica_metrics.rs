//! Metrics with the label replica.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::AtomicU64;
use std::sync::{Mutex, PoisonError};

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use spillway_types::{Admission, Outcome, RAMP_FULL, Reading, ReplicaName, SignFault, Signals};

use crate::catalog::replicas;
use crate::register::{Labels, metric, raise, registered};

/// Gauge of a number with a fraction.
type Fraction = Family<Labels, Gauge<f64, AtomicU64>>;

/// The policy's reason to ask a replica, and the first digit of the status.
type Asked = (&'static str, u16);

fn request_labels(replica: &str, reason: &str, class: u16) -> Labels {
    vec![
        ("replica", replica.to_owned()),
        ("reason", reason.to_owned()),
        ("status", format!("{class}xx")),
    ]
}

/// A replica at the moment of a scrape.
#[derive(Clone, Debug)]
pub struct LiveReplica {
    /// Name of the replica.
    pub name: String,
    /// Requests that the replica serves for this node.
    pub in_flight: u64,
    /// Most requests that the replica is given at a time; `None` where no limit is measured.
    pub concurrency_limit: Option<u32>,
    /// Connections that this node holds to the replica.
    pub connections: u64,
    /// Times that the replica sent bytes which no request had asked for.
    pub unasked: u64,
    /// Admission of new requests.
    pub admission: Admission,
    /// Share of the replica's weight that counts, in permille.
    pub ramp_permille: u16,
    /// Known load of the replica.
    pub signals: Signals,
    /// Models of the replica whose circuit breaker is not closed.
    pub breakers: u64,
    /// Models that the replica should serve and says it does not have.
    pub models_missing: u64,
}

registered! {
    /// Metrics with the label replica.
    #[derive(Debug)]
    pub(crate) struct ReplicaMetrics {
        in_flight: Family<Labels, Gauge> = metric(replicas::IN_FLIGHT),
        concurrency_limit: Family<Labels, Gauge> = metric(replicas::REPLICA_CONCURRENCY_LIMIT),
        connections: Family<Labels, Gauge> = metric(replicas::REPLICA_CONNECTIONS),
        unasked: Family<Labels, Counter> = metric(replicas::REPLICA_UNASKED),
        admission: Family<Labels, Gauge> = metric(replicas::REPLICA_ADMISSION),
        breakers: Family<Labels, Gauge> = metric(replicas::REPLICA_BREAKERS),
        models_missing: Family<Labels, Gauge> = metric(replicas::REPLICA_MODELS_MISSING),
        ramp: Fraction = metric(replicas::REPLICA_RAMP),
        latency: Fraction = metric(replicas::REPLICA_LATENCY),
        p99: Fraction = metric(replicas::REPLICA_P99),
        load: Fraction = metric(replicas::REPLICA_LOAD),
        trust: Fraction = metric(replicas::REPLICA_TRUST),
        transitions: Family<Labels, Counter> = metric(replicas::REPLICA_TRANSITIONS),
        faults: Family<Labels, Counter> = metric(replicas::REPLICA_FAULTS),
        checks: Family<Labels, Counter> = metric(replicas::REPLICA_CHECKS),
        requests: Family<Labels, Counter> = metric(replicas::REPLICA_REQUESTS),
        /// Counters of `requests` by replica, so that no request has to build labels.
        asked: Mutex<BTreeMap<ReplicaName, BTreeMap<Asked, Counter>>>,
        /// Labels of the counters by replica, so that those of a removed replica can be dropped.
        counted: Mutex<BTreeMap<String, BTreeSet<Labels>>>,
    }
}

impl ReplicaMetrics {
    pub(crate) fn transition(&self, replica: &str, to: &'static str, why: &str) {
        let labels =
            vec![("replica", replica.to_owned()), ("to", to.to_owned()), ("why", why.to_owned())];
        self.count(replica, &self.transitions, labels);
    }

    pub(crate) fn fault(&self, replica: &str, fault: SignFault) {
        let labels = vec![("replica", replica.to_owned()), ("fault", fault.as_str().to_owned())];
        self.count(replica, &self.faults, labels);
    }

    pub(crate) fn check(&self, replica: &str, check: &'static str, result: &'static str) {
        let labels = vec![
            ("replica", replica.to_owned()),
            ("check", check.to_owned()),
            ("result", result.to_owned()),
        ];
        self.count(replica, &self.checks, labels);
    }

    /// Counts a request by the replica of this region that was asked last.
    pub(crate) fn request(&self, outcome: &Outcome) {
        let (Some(replica), Some(reason)) = (&outcome.replica, outcome.reason) else { return };
        let class = outcome.status / 100;
        let mut asked = self.asked.lock().unwrap_or_else(PoisonError::into_inner);
        // Looked up by reference first: the name is cloned only once per replica.
        if !asked.contains_key(replica) {
            asked.insert(replica.clone(), BTreeMap::new());
        }
        let Some(counters) = asked.get_mut(replica) else { return };
        let counter = counters.entry((reason, class)).or_insert_with(|| {
            self.requests.get_or_create_owned(&request_labels(replica.as_str(), reason, class))
        });
        counter.inc();
    }

    fn count(&self, replica: &str, family: &Family<Labels, Counter>, labels: Labels) {
        family.get_or_create(&labels).inc();
        let mut counted = self.counted.lock().unwrap_or_else(PoisonError::into_inner);
        counted.entry(replica.to_owned()).or_default().insert(labels);
    }

    /// Raises the counter of unasked bytes to a total that is counted elsewhere.
    fn raise_unasked(&self, replica: &str, total: u64) {
        let labels = vec![("replica", replica.to_owned())];
        raise(&self.unasked.get_or_create(&labels), total);
        let mut counted = self.counted.lock().unwrap_or_else(PoisonError::into_inner);
        counted.entry(replica.to_owned()).or_default().insert(labels);
    }

    /// Drops the counters of replicas that are gone: discovery brings new names without end.
    fn forget_others(&self, replicas: &[LiveReplica]) {
        let names: BTreeSet<&str> = replicas.iter().map(|replica| replica.name.as_str()).collect();
        let mut counted = self.counted.lock().unwrap_or_else(PoisonError::into_inner);
        counted.retain(|name, labels| {
            let stays = names.contains(name.as_str());
            for labels in labels.iter().filter(|_| !stays) {
                for family in [&self.transitions, &self.faults, &self.checks, &self.unasked] {
                    family.remove(labels);
                }
            }
            stays
        });
        let mut asked = self.asked.lock().unwrap_or_else(PoisonError::into_inner);
        asked.retain(|replica, counters| {
            let stays = names.contains(replica.as_str());
            for (reason, class) in counters.keys().filter(|_| !stays) {
                self.requests.remove(&request_labels(replica.as_str(), reason, *class));
            }
            stays
        });
    }

    /// Shows `replicas`; earlier values of other replicas vanish.
    pub(crate) fn show(&self, replicas: &[LiveReplica]) {
        self.forget_others(replicas);
        self.in_flight.clear();
        self.concurrency_limit.clear();
        self.connections.clear();
        self.admission.clear();
        self.breakers.clear();
        self.models_missing.clear();
        for gauge in [&self.ramp, &self.latency, &self.p99, &self.load, &self.trust] {
            gauge.clear();
        }
        for replica in replicas {
            self.show_one(replica);
        }
    }

    fn show_one(&self, replica: &LiveReplica) {
        let labels = vec![("replica", replica.name.clone())];
        let whole = |family: &Family<Labels, Gauge>, value: u64| {
            family.get_or_create(&labels).set(i64::try_from(value).unwrap_or(i64::MAX));
        };
        whole(&self.in_flight, replica.in_flight);
        if let Some(limit) = replica.concurrency_limit {
            whole(&self.concurrency_limit, limit.into());
        }
        whole(&self.connections, replica.connections);
        self.raise_unasked(&replica.name, replica.unasked);
        whole(&self.breakers, replica.breakers);
        whole(&self.models_missing, replica.models_missing);
        let ramp = f64::from(replica.ramp_permille) / f64::from(RAMP_FULL);
        self.ramp.get_or_create(&labels).set(ramp);
        let admission = ("admission", replica.admission.as_str().to_owned());
        self.admission.get_or_create(&vec![labels[0].clone(), admission]).set(1);
        let signals = &replica.signals;
        for (family, reading) in [(&self.latency, signals.latency_ms), (&self.p99, signals.p99_ms)]
        {
            // An unknown reading is left out: its zero would look like a fast, idle replica.
            if reading.is_known() {
                family.get_or_create(&labels).set(f64::from(reading.value) / 1000.0);
            }
        }
        for (signal, reading) in reported(signals) {
            if reading.is_known() {
                let labels = vec![labels[0].clone(), ("signal", signal.to_owned())];
                self.load.get_or_create(&labels).set(f64::from(reading.value));
                self.trust.get_or_create(&labels).set(f64::from(reading.trust));
            }
        }
    }
}

/// Returns the load that a replica reports, with the names that the metric has for its signals.
fn reported(signals: &Signals) -> [(&'static str, Reading); 6] {
    [
        ("queued", signals.queued),
        ("running", signals.running),
        ("kv_use", signals.kv_use),
        ("gpu_use", signals.gpu_use),
        ("gpu_memory_use", signals.gpu_memory_use),
        ("pending", signals.pending),
    ]
}
