//! Metrics of the control plane.

use std::sync::atomic::AtomicU64;

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;

use crate::catalog::control;
use crate::register::{Labels, metric, raise, registered, signed};

/// This node's part in the control plane.
#[derive(Clone, Debug)]
pub struct LiveControl {
    /// Role: learner, follower, candidate, leader, isolated leader, stopped.
    pub role: &'static str,
    /// Latest term that this node knows.
    pub term: u64,
    /// Index of the last entry carried out here.
    pub applied_index: u64,
    /// Index of the last entry in this node's log.
    pub last_index: u64,
    /// Greatest possible age of this node's state, in seconds; without any contact the time since the
    /// start.
    pub age_s: f64,
    /// Troubles of the state or of disks, by kind, each with the number of nodes that have it.
    pub troubles: Vec<(&'static str, u64)>,
    /// Number of voters.
    pub voters: u64,
    /// Bytes of entries in this node's log.
    pub log_bytes: u64,
    /// Time in seconds for which the disk has not answered; 0 if nothing waits for it.
    pub disk_waiting_s: f64,
    /// Writes to the disk since the node started.
    pub disk_writes: u64,
    /// Time in seconds that these writes took.
    pub disk_write_s: f64,
    /// Records of the cluster, by their use on this node.
    pub items: Vec<LiveItems>,
}

/// Number of records of one kind with one use on this node.
#[derive(Clone, Debug)]
pub struct LiveItems {
    /// Kind of the records: model, split, route, replica.
    pub kind: &'static str,
    /// Use of the records: used, hides, in_part, unusable.
    pub outcome: &'static str,
    /// Number of such records.
    pub count: u64,
}

registered! {
    /// Metrics of the control plane; empty on a node that takes no part in a cluster.
    #[derive(Debug)]
    pub(crate) struct ControlMetrics {
        role: Family<Labels, Gauge> = metric(control::CONTROL_ROLE),
        term: Family<Labels, Gauge> = metric(control::CONTROL_TERM),
        applied: Family<Labels, Gauge> = metric(control::CONTROL_APPLIED),
        last: Family<Labels, Gauge> = metric(control::CONTROL_LAST),
        age: Family<Labels, Gauge<f64, AtomicU64>> = metric(control::CONTROL_AGE),
        voters: Family<Labels, Gauge> = metric(control::CONTROL_VOTERS),
        log_bytes: Family<Labels, Gauge> = metric(control::CONTROL_LOG_BYTES),
        troubles: Family<Labels, Gauge> = metric(control::CONTROL_TROUBLES),
        disk_waiting: Family<Labels, Gauge<f64, AtomicU64>> = metric(control::CONTROL_DISK_WAITING),
        disk_writes: Family<Labels, Counter> = metric(control::CONTROL_DISK_WRITES),
        disk_write_seconds: Family<Labels, Counter<f64, AtomicU64>> =
            metric(control::CONTROL_DISK_WRITE_SECONDS),
        items: Family<Labels, Gauge> = metric(control::CONTROL_ITEMS),
    }
}

impl ControlMetrics {
    /// Shows `live`; earlier values vanish.
    pub(crate) fn show(&self, live: Option<&LiveControl>) {
        // Cleared first, so that an earlier role, age or use vanishes. The others have one value,
        // which is replaced.
        self.role.clear();
        self.age.clear();
        self.troubles.clear();
        self.items.clear();
        let Some(live) = live else { return };
        let none = Labels::new;
        self.role.get_or_create(&vec![("role", live.role.to_owned())]).set(1);
        for (family, value) in [
            (&self.term, live.term),
            (&self.applied, live.applied_index),
            (&self.last, live.last_index),
            (&self.voters, live.voters),
            (&self.log_bytes, live.log_bytes),
        ] {
            family.get_or_create(&none()).set(signed(value));
        }
        self.disk_waiting.get_or_create(&none()).set(live.disk_waiting_s);
        raise(&self.disk_writes.get_or_create(&none()), live.disk_writes);
        let seconds = self.disk_write_seconds.get_or_create(&none());
        // A counter never falls, even if another log counts from 0.
        seconds.inc_by((live.disk_write_s - seconds.get()).max(0.0));
        for LiveItems { kind, outcome, count } in &live.items {
            let labels = vec![("kind", (*kind).to_owned()), ("use", (*outcome).to_owned())];
            self.items.get_or_create(&labels).set(signed(*count));
        }
        for (kind, count) in &live.troubles {
            let labels = vec![("kind", (*kind).to_owned())];
            self.troubles.get_or_create(&labels).set(signed(*count));
        }
        self.age.get_or_create(&none()).set(live.age_s);
    }
}
