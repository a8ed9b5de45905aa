//! Forms of nodes and regions.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use spillway_cluster_state::{
    Node, NodeId, NodeRight, NodeRole, Region, RegionState, RemovedNode, RevokedCertificate,
};
use spillway_types::Percent;

use crate::patterns::{COUNTRY_OR_NONE, NAME};

/// Fields of a node that operators can set.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct NodeRecord {
    /// Eligibility of the node as a voter.
    pub(crate) role: VoteName,
}

/// Eligibility of a node as a voter.
#[derive(Clone, Copy, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum VoteName {
    /// May vote: the rule chooses.
    Any,
    /// Never votes.
    Learner,
}

/// Description of a node, by itself.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct NodeInfo {
    /// Number of the node, never given twice.
    pub(crate) id: u64,
    /// Region of the node.
    pub(crate) region: String,
    /// Address at which other nodes reach it.
    pub(crate) address: String,
    /// Id of its data folder.
    pub(crate) disk: String,
    /// SHA-256 of its certificate.
    pub(crate) fingerprint: String,
    /// Oldest wire version that the node reads.
    pub(crate) wire_oldest: u16,
    /// Newest wire version that the node reads.
    pub(crate) wire_newest: u16,
    /// Index of the entry that let the node join.
    pub(crate) joined: u64,
    /// True if operators' orders may come from the node.
    pub(crate) operators: bool,
}

/// Right of a node to propose operators' orders.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct NodeRightRecord {
    /// True if operators' orders may come from the node.
    pub(crate) operators: bool,
}

/// A node that was removed. It can join again by a join token that was made since, or once this
/// record is removed.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct RemovedNodeInfo {
    /// Number that the node had.
    pub(crate) id: u64,
    /// Region of the node.
    pub(crate) region: String,
    /// SHA-256 of the node's certificate.
    pub(crate) fingerprint: String,
}

/// A certificate that no node accepts any more.
#[derive(Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct RevokedRecord {
    /// Reason, for people; may be empty.
    pub(crate) reason: String,
}

impl From<&NodeRight> for NodeRightRecord {
    fn from(right: &NodeRight) -> Self {
        Self { operators: right.is_operator }
    }
}

impl From<&RemovedNode> for RemovedNodeInfo {
    fn from(removed: &RemovedNode) -> Self {
        Self {
            id: removed.id.0,
            region: removed.region.to_string(),
            fingerprint: removed.fingerprint.to_string(),
        }
    }
}

impl From<&RevokedCertificate> for RevokedRecord {
    fn from(revoked: &RevokedCertificate) -> Self {
        Self { reason: revoked.reason.clone() }
    }
}

impl From<NodeRole> for VoteName {
    fn from(role: NodeRole) -> Self {
        match role {
            NodeRole::Any => Self::Any,
            NodeRole::Learner => Self::Learner,
        }
    }
}

impl From<VoteName> for NodeRole {
    fn from(name: VoteName) -> Self {
        match name {
            VoteName::Any => Self::Any,
            VoteName::Learner => Self::Learner,
        }
    }
}

impl NodeInfo {
    pub(crate) fn of(id: NodeId, node: &Node) -> Self {
        let spec = &node.spec;
        Self {
            id: id.0,
            region: spec.region.to_string(),
            address: spec.address.clone(),
            disk: spec.disk.to_string(),
            fingerprint: spec.fingerprint.to_string(),
            wire_oldest: spec.wire_oldest,
            wire_newest: spec.wire_newest,
            joined: node.joined,
            // Filled in by `records::item`, which knows the rights of nodes.
            operators: false,
        }
    }
}

/// Nodes and replicas that are near each other.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct RegionRecord {
    /// ISO 3166 code of the region's country, two capital letters; may be empty.
    #[schemars(regex(pattern = COUNTRY_OR_NONE))]
    pub(crate) country: String,
    /// Share of spilled work that the region takes, in percent of the usual with one decimal at
    /// most.
    #[schemars(with = "f64", range(min = 0, max = 1_000))]
    pub(crate) weight_percent: Percent,
    /// State of the region: the work that it may be given.
    pub(crate) state: RegionStateName,
    /// Extra cost of serving here, compared with the cheapest region, as milliseconds of time to
    /// first token.
    pub(crate) price_ms: u32,
    /// Round-trip times to other regions in milliseconds, until they are measured.
    #[schemars(extend("propertyNames" = { "pattern": NAME }))]
    pub(crate) rtt_hints_ms: BTreeMap<String, u32>,
}

/// State of a region: the work that it may be given.
#[derive(Clone, Copy, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum RegionStateName {
    /// All work.
    Active,
    /// No new work from elsewhere.
    Draining,
    /// No work; the region may be removed.
    Evacuating,
}

impl From<RegionState> for RegionStateName {
    fn from(state: RegionState) -> Self {
        match state {
            RegionState::Active => Self::Active,
            RegionState::Draining => Self::Draining,
            RegionState::Evacuating => Self::Evacuating,
        }
    }
}

impl From<RegionStateName> for RegionState {
    fn from(name: RegionStateName) -> Self {
        match name {
            RegionStateName::Active => Self::Active,
            RegionStateName::Draining => Self::Draining,
            RegionStateName::Evacuating => Self::Evacuating,
        }
    }
}

impl Default for RegionRecord {
    fn default() -> Self {
        Self::from(&Region::default())
    }
}

impl From<&Region> for RegionRecord {
    fn from(region: &Region) -> Self {
        let rtts = region.rtt_hints_ms.iter();
        Self {
            country: region.country.clone(),
            weight_percent: Percent::of_permille(region.weight_permille),
            state: region.state.into(),
            price_ms: region.price_ms,
            rtt_hints_ms: rtts.map(|(name, rtt_ms)| (name.to_string(), *rtt_ms)).collect(),
        }
    }
}

impl From<RegionRecord> for Region {
    fn from(record: RegionRecord) -> Self {
        let rtts = record.rtt_hints_ms.into_iter();
        Self {
            country: record.country,
            weight_permille: record.weight_percent.permille(),
            state: record.state.into(),
            price_ms: record.price_ms,
            rtt_hints_ms: rtts.map(|(name, rtt_ms)| (name.into(), rtt_ms)).collect(),
        }
    }
}
