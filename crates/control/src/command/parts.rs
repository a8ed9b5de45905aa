//! What commands are made of.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};
use spillway_types::{ModelName, NodeName, RegionName, ReplicaName};

use crate::{Belief, ClusterId, DiskId, Fingerprint, Hidden, LeaseSource, ReplicaId, TokenId};

/// The first command of a cluster.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Form {
    /// The cluster's id, drawn by the node that forms it.
    pub cluster: ClusterId,
    /// The nodes that form it; they get ids from 1 on, in the order of their names.
    pub nodes: Vec<NodeSpec>,
}

/// A node as it presents itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeSpec {
    /// Its name, unique in the cluster.
    pub name: NodeName,
    /// Its region. Another region is another node.
    pub region: RegionName,
    /// Where other nodes reach it, `host:port`.
    pub address: String,
    /// Its data folder.
    pub disk: DiskId,
    /// Its certificate, for people who compare.
    pub fingerprint: Fingerprint,
    /// The oldest wire version it reads.
    pub wire_oldest: u16,
    /// The newest wire version it reads: [`crate::WIRE`] of its program.
    pub wire_newest: u16,
}

/// Shows that a node has a join token, as wire versions before 5 did it. Whoever reads it can present
/// it for another node, so it counts only as long as an older node is in the cluster.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TokenProof {
    /// Which token.
    pub id: TokenId,
    /// Hash of its secret part, made by the node that was shown it.
    pub hash: Hidden,
}

/// A join token to make.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TokenTerms {
    /// Its public key, see [`crate::JoinText::public_key`].
    pub key: Hidden,
    /// The only region that it is good for, if it is bound to one.
    pub region: Option<RegionName>,
    /// For how many milliseconds it is good, 30 days at most, by the cluster's clock from when it is
    /// made.
    pub valid_ms: u64,
    /// How many nodes may join by it.
    pub uses: u32,
    /// Whether the nodes that join by it may propose operators' orders.
    pub is_operator: bool,
}

/// A replica as it is registered.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReplicaSpec {
    /// Where it is: `http://host:port` or `https://host:port`, without a user.
    pub url: String,
    /// The server's software, e.g. `vllm`.
    pub engine: String,
    /// What it serves; nothing where the nodes of its region ask it.
    pub models: BTreeSet<ModelName>,
    /// Its share of the work, 1 to 1,000.
    pub weight: u32,
    /// The pool that routes refer to.
    pub pool: String,
    /// Its hardware, e.g. `h100`; may be empty.
    pub hardware: String,
    /// Requests at a time, if there is a limit.
    pub capacity: Option<u32>,
    /// How it is known.
    pub source: LeaseSource,
}

impl ReplicaSpec {
    /// A replica of a config file with nothing but the necessary.
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
    /// Which.
    pub name: ReplicaName,
    /// Of which registration. Others are skipped.
    pub epoch: u64,
}

/// What one node sees of a replica.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Observation {
    /// Which.
    pub replica: ReplicaName,
    /// Of which registration. Others are skipped.
    pub epoch: u64,
    /// What it seems to be.
    pub belief: Belief,
    /// How many independent signals say so.
    pub signals: u8,
}

impl Observation {
    /// The replica it is about, seen in `region`.
    #[must_use]
    pub fn id(&self, region: &RegionName) -> ReplicaId {
        ReplicaId::new(region.clone(), self.replica.clone())
    }
}
