//! Metrics of what the cluster agrees on.

use std::sync::atomic::AtomicU64;

use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

use crate::metrics::{Labels, metric, signed};
use crate::names;

/// A node's part in what the cluster agrees on.
#[derive(Clone, Debug)]
pub struct LiveControl {
    /// What it is: learner, follower, candidate, leader, isolated leader, stopped.
    pub role: &'static str,
    /// The latest term it knows.
    pub term: u64,
    /// The last entry that was carried out here.
    pub applied_index: u64,
    /// The last entry in its log.
    pub last_index: u64,
    /// How old its knowledge can be, in seconds; none if it was never in contact.
    pub age_s: Option<f64>,
    /// Nodes that vote.
    pub voters: u64,
    /// Bytes of entries in its log.
    pub log_bytes: u64,
    /// What became here of the things agreed on.
    pub items: Vec<LiveItems>,
}

/// Things agreed on, of one kind and with one use here.
#[derive(Clone, Debug)]
pub struct LiveItems {
    /// What they are: model, split, route, replica.
    pub kind: &'static str,
    /// Whether they are used: used, hides, in_part, unusable.
    pub outcome: &'static str,
    /// How many.
    pub count: u64,
}

/// All of them; there are none on a node that takes no part.
#[derive(Debug)]
pub(crate) struct ControlMetrics {
    role: Family<Labels, Gauge>,
    term: Family<Labels, Gauge>,
    applied: Family<Labels, Gauge>,
    last: Family<Labels, Gauge>,
    age: Family<Labels, Gauge<f64, AtomicU64>>,
    voters: Family<Labels, Gauge>,
    log_bytes: Family<Labels, Gauge>,
    items: Family<Labels, Gauge>,
}

impl ControlMetrics {
    pub(crate) fn new(r: &mut Registry) -> Self {
        Self {
            role: metric(r, names::CONTROL_ROLE, "What this node is in the cluster"),
            term: metric(r, names::CONTROL_TERM, "Latest term"),
            applied: metric(r, names::CONTROL_APPLIED, "Last entry carried out"),
            last: metric(r, names::CONTROL_LAST, "Last entry in the log"),
            age: metric(r, names::CONTROL_AGE, "How old what is known can be"),
            voters: metric(r, names::CONTROL_VOTERS, "Nodes that vote"),
            log_bytes: metric(r, names::CONTROL_LOG_BYTES, "Bytes in the log"),
            items: metric(r, names::CONTROL_ITEMS, "Things agreed on, by their use here"),
        }
    }

    /// Shows how it stands; what was said before vanishes.
    pub(crate) fn show(&self, live: Option<&LiveControl>) {
        self.role.clear();
        self.age.clear();
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
        for LiveItems { kind, outcome, count } in &live.items {
            let labels = vec![("kind", (*kind).to_owned()), ("use", (*outcome).to_owned())];
            self.items.get_or_create(&labels).set(signed(*count));
        }
        if let Some(age_s) = live.age_s {
            self.age.get_or_create(&none()).set(age_s);
        }
    }
}
