//! Parts of commands.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};
use spillway_types::{ModelName, NodeName, RegionName, ReplicaName};

use crate::{Belief, ClusterId, DiskId, Fingerprint, Hidden, LeaseSource, ReplicaId};

/// Content of the first command of a cluster.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Form {
    /// The cluster's id, drawn at random by the node that forms it.
    pub cluster: ClusterId,
    /// The nodes that form the cluster; they get ids from 1 on, in the order of their names.
    pub nodes: Vec<NodeSpec>,
}

/// A node as it presents itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeSpec {
    /// Name of the node, unique in the cluster.
    pub name: NodeName,
    /// Region of the node, which never changes.
    pub region: RegionName,
    /// Address at which other nodes reach the node, `host:port`.
    pub address: String,
    /// Id of the node's data folder.
    pub disk: DiskId,
    /// Fingerprint of the node's certificate, for people who compare.
    pub fingerprint: Fingerprint,
    /// The oldest wire version that the node reads.
    pub wire_oldest: u16,
    /// The newest wire version that the node reads: [`crate::WIRE`] of its program.
    pub wire_newest: u16,
}

/// Terms of a join token to make.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TokenTerms {
    /// Public key of the token, see [`crate::JoinText::public_key`].
    pub key: Hidden,
    /// The only region whose nodes may use the token; None for every region.
    pub region: Option<RegionName>,
    /// Life of the token in milliseconds, 30 days at most, by the cluster's clock from the moment
    /// it is made.
    pub valid_ms: u64,
    /// Number of nodes that may join by the token.
    pub uses: u32,
    /// True if the nodes that join by the token may propose operators' orders.
    pub is_operator: bool,
}

/// Properties of a replica as it is registered.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReplicaSpec {
    /// URL of the server, `http://host:port` or `https://host:port`, without a user.
    pub url: String,
    /// The server's software, e.g. `vllm`.
    pub engine: String,
    /// Models that the server serves; empty if the nodes of its region ask the server for them.
    pub models: BTreeSet<ModelName>,
    /// Weight in load balancing, 1 to 1,000.
    pub weight: u32,
    /// Pool of the replica, which routes refer to.
    pub pool: String,
    /// Hardware of the server, e.g. `h100`; may be empty.
    pub hardware: String,
    /// Most requests at a time; None for no limit.
    pub capacity: Option<u32>,
    /// Source of the registration: a config file, or the replica with a lease.
    pub source: LeaseSource,
}

impl ReplicaSpec {
    /// Returns the spec of a replica of a config file, with defaults for all but URL and models.
    #[must_use]
    pub fn new(url: &str, models: impl IntoIterator<Item = ModelName>) -> Self {
        Self {
            url: url.to_owned(),
            engine: "openai".to_owned(),
            models: models.into_iter().collect(),
            weight: 1,
            pool: "default".to_owned(),
            hardware: String::new(),
            capacity: None,
            source: LeaseSource::Config,
        }
    }
}

/// A replica whose lease is renewed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeaseRenewal {
    /// Name of the replica in its region.
    pub name: ReplicaName,
    /// Epoch of the registration. A renewal for another epoch is skipped.
    pub epoch: u64,
}

/// View of one node on one replica.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Observation {
    /// Name of the replica in its region.
    pub replica: ReplicaName,
    /// Epoch of the registration. An observation of another epoch is skipped.
    pub epoch: u64,
    /// State of the replica in the view of the node.
    pub belief: Belief,
    /// Number of independent signals for that view.
    pub signals: u8,
}

impl Observation {
    /// Returns the id of the observed replica, which is in `region`.
    #[must_use]
    pub fn id(&self, region: &RegionName) -> ReplicaId {
        ReplicaId::new(region.clone(), self.replica.clone())
    }
}
