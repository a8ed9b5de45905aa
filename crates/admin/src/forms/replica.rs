//! Replicas.

use std::collections::BTreeSet;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use spillway_control::{Health, Lease, LeaseSource, Replica, ReplicaSpec};

use super::{named, texts};
use crate::patterns::{MODEL, NAME, TEXT, URL};

/// A model server as it is registered.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ReplicaRecord {
    /// `http://host:port` or `https://host:port`, without a user.
    #[schemars(regex(pattern = URL))]
    pub(crate) url: String,
    /// The server's software, e.g. `vllm`.
    #[serde(default = "openai")]
    #[schemars(regex(pattern = NAME))]
    pub(crate) engine: String,
    /// What it serves; without a word of it, the nodes of its region ask it.
    #[serde(default)]
    #[schemars(inner(regex(pattern = MODEL)))]
    pub(crate) models: BTreeSet<String>,
    /// Its share of the work, 1 to 1,000.
    #[serde(default = "one")]
    pub(crate) weight: u32,
    /// The pool that routes refer to.
    #[serde(default = "default_pool")]
    #[schemars(regex(pattern = NAME))]
    pub(crate) pool: String,
    /// Its hardware, e.g. `h100`; may be empty.
    #[serde(default)]
    #[schemars(regex(pattern = TEXT))]
    pub(crate) hardware: String,
    /// Requests at a time, if there is a limit.
    #[serde(default)]
    pub(crate) capacity: Option<u32>,
    /// How long a registration holds, if it has to be renewed.
    #[serde(default)]
    pub(crate) lease_ms: Option<u64>,
    /// Differs for each start of the server; 0 is for those that nodes have in their config files.
    #[serde(default = "first")]
    pub(crate) incarnation: u64,
}

/// What the cluster says about a replica.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct ReplicaInfo {
    /// What it may be given: `active`, `draining` or `drained`.
    pub(crate) state: String,
    /// The operator's weight, instead of its own.
    pub(crate) operator_weight: Option<u32>,
    /// Index of the entry that registered it.
    pub(crate) epoch: u64,
    /// How long its registration holds, if it has to be renewed.
    pub(crate) lease: Option<LeaseInfo>,
    /// What the nodes of its region see, once one has said something.
    pub(crate) health: Option<HealthInfo>,
}

/// Until when a registration holds.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct LeaseInfo {
    /// Of which registration.
    pub(crate) epoch: u64,
    /// By the region's clock.
    pub(crate) ends_ms: u64,
}

/// What the nodes of a region see of a replica.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct HealthInfo {
    /// Of which registration.
    pub(crate) epoch: u64,
    /// What the cluster believes: `up` or `down`.
    pub(crate) belief: String,
    /// When that changed last, by the region's clock.
    pub(crate) changed_ms: Option<u64>,
    /// What each node said last.
    pub(crate) observers: Vec<ObserverInfo>,
}

/// What one node said.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct ObserverInfo {
    /// The number of the node.
    pub(crate) node: u64,
    /// `up` or `down`.
    pub(crate) belief: String,
    /// How many independent signals said so.
    pub(crate) signals: u8,
    /// When, by the region's clock.
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

/// What is registered without a word of it is none of a config file.
fn first() -> u64 {
    1
}

fn one() -> u32 {
    1
}
