//! Forms of replicas.

use std::collections::BTreeSet;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use spillway_cluster_state::{Health, Lease, LeaseSource, Replica, ReplicaSpec};

use super::{named, texts};
use crate::patterns::{MODEL, NAME, TEXT, URL};

/// A model server as it is registered.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ReplicaRecord {
    /// `http://host:port` or `https://host:port`, without a user.
    #[schemars(regex(pattern = URL))]
    pub(crate) url: String,
    /// Software of the server, e.g. `vllm`.
    #[serde(default = "openai")]
    #[schemars(regex(pattern = NAME))]
    pub(crate) engine: String,
    /// Models that the server serves; if left out, the nodes of its region ask the server.
    #[serde(default)]
    #[schemars(inner(regex(pattern = MODEL)))]
    pub(crate) models: BTreeSet<String>,
    /// Share of the work, 1 to 1,000.
    #[serde(default = "one")]
    pub(crate) weight: u32,
    /// The pool that routes refer to.
    #[serde(default = "default_pool")]
    #[schemars(regex(pattern = NAME))]
    pub(crate) pool: String,
    /// Hardware of the server, e.g. `h100`; may be empty.
    #[serde(default)]
    #[schemars(regex(pattern = TEXT))]
    pub(crate) hardware: String,
    /// Most requests at a time; null for no limit.
    #[serde(default)]
    pub(crate) capacity: Option<u32>,
    /// Milliseconds that a registration is valid, if it has to be renewed.
    #[serde(default)]
    pub(crate) lease_ms: Option<u64>,
    /// Number that differs for each start of the server; 0 is for replicas in the config files of
    /// nodes.
    #[serde(default = "first")]
    pub(crate) incarnation: u64,
}

/// State of a replica in the cluster.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct ReplicaInfo {
    /// State by operators' orders: `active`, `draining` or `drained`.
    pub(crate) state: String,
    /// Weight that an operator set, instead of the replica's own; null if none did.
    pub(crate) operator_weight: Option<u32>,
    /// Index of the entry that registered the replica.
    pub(crate) epoch: u64,
    /// Lease of the registration; null if it need not be renewed.
    pub(crate) lease: Option<LeaseInfo>,
    /// Health of the replica, by the nodes of its region; null before the first report.
    pub(crate) health: Option<HealthInfo>,
}

/// Lease of a registration.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct LeaseInfo {
    /// Index of the entry of the registration.
    pub(crate) epoch: u64,
    /// End of the lease by the region's clock, in milliseconds.
    pub(crate) ends_ms: u64,
}

/// Health of a replica, by the nodes of its region.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct HealthInfo {
    /// Index of the entry of the registration.
    pub(crate) epoch: u64,
    /// Verdict of the cluster: `up` or `down`.
    pub(crate) belief: String,
    /// Time of the last change of the verdict by the region's clock, in milliseconds; null if it
    /// never changed.
    pub(crate) changed_ms: Option<u64>,
    /// Last report of each node.
    pub(crate) observers: Vec<ObserverInfo>,
}

/// Report of one node.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct ObserverInfo {
    /// The number of the node.
    pub(crate) node: u64,
    /// Verdict of the node: `up` or `down`.
    pub(crate) belief: String,
    /// Number of independent signals for that verdict.
    pub(crate) signals: u8,
    /// Time of the report by the region's clock, in milliseconds.
    pub(crate) at_ms: u64,
}

impl From<&Replica> for ReplicaRecord {
    fn from(replica: &Replica) -> Self {
        let ReplicaSpec { url, engine, models, weight, pool, hardware, capacity, source } =
            replica.spec.clone();
        let lease_ms = match source {
            LeaseSource::Config => None,
            LeaseSource::Lease { length_ms } => Some(length_ms),
        };
        let (models, incarnation) = (texts(&models), replica.incarnation);
        Self { url, engine, models, weight, pool, hardware, capacity, lease_ms, incarnation }
    }
}

impl From<ReplicaRecord> for ReplicaSpec {
    fn from(record: ReplicaRecord) -> Self {
        let ReplicaRecord { url, engine, models, weight, pool, hardware, capacity, .. } = record;
        let config = LeaseSource::Config;
        let source = record.lease_ms.map_or(config, |length_ms| LeaseSource::Lease { length_ms });
        let models = named(&models);
        Self { url, engine, models, weight, pool, hardware, capacity, source }
    }
}

impl From<&Replica> for ReplicaInfo {
    fn from(replica: &Replica) -> Self {
        Self {
            state: replica.state.to_string(),
            operator_weight: replica.weight,
            epoch: replica.epoch,
            // Leases and health are records of their own: `records::item` fills them in.
            lease: None,
            health: None,
        }
    }
}

impl From<&Lease> for LeaseInfo {
    fn from(lease: &Lease) -> Self {
        Self { epoch: lease.epoch, ends_ms: lease.ends_ms }
    }
}

impl From<&Health> for HealthInfo {
    fn from(health: &Health) -> Self {
        let observers = health.observers.iter().map(|(node, seen)| ObserverInfo {
            node: node.0,
            belief: seen.belief.to_string(),
            signals: seen.signals,
            at_ms: seen.at_ms,
        });
        Self {
            epoch: health.epoch,
            belief: health.belief.to_string(),
            changed_ms: health.changed_ms,
            observers: observers.collect(),
        }
    }
}

fn openai() -> String {
    "openai".to_owned()
}

fn default_pool() -> String {
    "default".to_owned()
}

/// Returns the default incarnation: 1, since 0 is for replicas of config files.
fn first() -> u64 {
    1
}

fn one() -> u32 {
    1
}
