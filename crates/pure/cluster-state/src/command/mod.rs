//! Commands: the changes that operators and nodes propose to the state.

mod describe;
mod item;
mod parts;

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};
use spillway_prefix::HotDelta;
use spillway_rate_limit::Statement;
use spillway_rollout::RolloutChange;
use spillway_types::{Country, ModelName, NodeName, RegionName};

use crate::wire::{RECORD_ORDER, WIRE_ROLLOUT};
use crate::{
    ClusterId, KeyId, NodeId, NodeRole, RecordKey, RegionState, ReplicaId, ReplicaState,
    TokenSignature,
};

pub use item::Item;
pub use parts::{Form, LeaseRenewal, NodeSpec, Observation, ReplicaSpec, TokenTerms};

/// A change of the state. The order of variants and fields is the format: new variants go to the
/// end, with the wire version that has them in [`Command::since`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Command {
    /// Forms the cluster. It is the first command: all others are refused before it.
    Form(Form),
    /// Gives the cluster another id, after the cluster was recreated from one node's disk or a
    /// backup.
    ReplaceCluster {
        /// The present id.
        from: ClusterId,
        /// The new id, so that nodes of the old cluster don't mix with the new one.
        to: ClusterId,
    },
    /// Updates the address or version of a node, or lets a node join without a token where none is
    /// required.
    RegisterNode {
        /// The node as it presents itself.
        node: NodeSpec,
    },
    /// Sets the role of a node, which decides if the node may vote.
    SetNodeRole {
        /// The node.
        node: NodeId,
        /// The new role.
        role: NodeRole,
        /// Condition on the node's record.
        expect: Expect,
    },
    /// Drains, evacuates or activates a region.
    SetRegionState {
        /// The region.
        region: RegionName,
        /// The new state.
        state: RegionState,
        /// Condition on the region's record.
        expect: Expect,
    },
    /// Sets the share of spilled requests that a region takes.
    SetRegionWeight {
        /// The region.
        region: RegionName,
        /// The share in thousandths: 1,000 is the usual one, 0 is none.
        weight_permille: u16,
        /// Condition on the region's record.
        expect: Expect,
    },
    /// Registers a replica, or registers it again after a restart or a change.
    RegisterReplica {
        /// The replica.
        id: ReplicaId,
        /// Address, models and other properties.
        spec: ReplicaSpec,
        /// Number of the replica's start, different for each one; 0 for a replica of a config file.
        /// The same spec with the same incarnation changes nothing.
        incarnation: u64,
        /// Condition on the replica's record.
        expect: Expect,
    },
    /// Drains a replica, marks it as drained, or takes it back.
    SetReplicaState {
        /// The replica.
        id: ReplicaId,
        /// The new state.
        state: ReplicaState,
        /// Condition on the replica's record.
        expect: Expect,
    },
    /// Sets an operator's weight for a replica, in place of the weight of its spec.
    SetReplicaWeight {
        /// The replica.
        id: ReplicaId,
        /// The weight, 1 to 1,000; None goes back to the weight of the spec.
        weight: Option<u32>,
        /// Condition on the replica's record.
        expect: Expect,
    },
    /// Renews leases of replicas.
    RenewLeases {
        /// The region of the replicas.
        region: RegionName,
        /// The leases to renew, at most [`crate::BATCH_MAX`].
        leases: Vec<LeaseRenewal>,
    },
    /// Takes out the region's replicas whose lease ended by the region's clock. The region's nodes
    /// propose it while there are overdue leases, at most every 5 s.
    ExpireLeases {
        /// The region of the replicas.
        region: RegionName,
    },
    /// Reports what the proposing node observes of replicas of its region.
    ReportHealth {
        /// The region of the replicas.
        region: RegionName,
        /// The nodes of the region that the proposer has contact with; the proposer itself may be
        /// left out.
        live: BTreeSet<NodeName>,
        /// The observations, at most [`crate::BATCH_MAX`].
        observations: Vec<Observation>,
    },
    /// Ends an API key for good.
    RevokeKey {
        /// The key.
        key: KeyId,
        /// Condition on the key's record.
        expect: Expect,
    },
    /// Writes a record as a whole.
    Put {
        /// The record's key and value.
        item: Item,
        /// Condition on the record that is there before.
        expect: Expect,
    },
    /// Removes a record and the records that belong to it.
    Remove {
        /// The record.
        key: RecordKey,
        /// Condition on the record.
        expect: Expect,
    },
    /// Reports blocks of prompts that became hot in a region, and blocks that are hot no more. The
    /// report is a hint: without it routing is right, but worse.
    HotBlocks {
        /// The region.
        region: RegionName,
        /// Number of the key that the hashes were made with, as in the setting [`crate::KEY_EPOCH`].
        /// Hashes of another key are refused.
        key_epoch: u64,
        /// The changes, at most [`crate::HOT_BATCH_MAX`] blocks that enter and as many that leave.
        delta: HotDelta,
    },
    /// Counts the setting [`crate::KEY_EPOCH`] up, so that nodes hash prompts with the next key. It
    /// is no [`Command::Put`], so that a repeated request does not count twice.
    RotatePrefixKey {
        /// Condition on the setting's record.
        expect: Expect,
    },
    /// Renews the leases of a node's process on shares of limits, gives units back and asks for
    /// more, see docs/explanation/limits.md.
    LeaseShares {
        /// The region of the node.
        region: RegionName,
        /// The statement.
        said: Statement,
    },
    /// Declares the country of the proposer's region, from the node's config. A country that is
    /// already set stays.
    DeclareCountry {
        /// The region of the node.
        region: RegionName,
        /// The country of the region.
        country: Country,
    },
    /// Declares if operators' orders may come from the proposing node, from its config. Only a
    /// node's first declaration can give it the right, and only where no operator and no token
    /// decided before: see [`crate::NodeRight`].
    DeclareOperators {
        /// True if the node is for operators' orders; false for an edge node.
        is_operator: bool,
    },
    /// Enforces membership: from then on only members may propose commands, and operators' orders
    /// need a [`crate::NodeRight`].
    EnforceMembership,
    /// Allows or forbids that operators' orders come from a node.
    SetNodeOperators {
        /// The node.
        node: NodeId,
        /// True to allow, false to forbid.
        is_operator: bool,
        /// Condition on the node's record.
        expect: Expect,
    },
    /// Lets a node join by a token.
    JoinNode {
        /// The node as it presents itself.
        node: NodeSpec,
        /// Signature by the token's holder for exactly this node and cluster.
        token: TokenSignature,
    },
    /// Records an order in the audit trail that no other command represents: an order to one node,
    /// or an attempt that a node refused.
    RecordOrder {
        /// The order in words, without secrets.
        what: String,
        /// Reason for which the node refused it; `None` if it was carried out.
        refused: Option<String>,
    },
    /// Changes the rollout of a split: by an operator, or by a node whose guard decided.
    ChangeRollout {
        /// The split.
        split: ModelName,
        /// The change.
        change: RolloutChange,
        /// Number of changes before this one, so that a decision of the guard is carried out once
        /// and over the progress that it was made for. Operators need none.
        number: Option<u32>,
        /// Reason for the change, with the figures behind it.
        why: String,
        /// Condition on the split's record.
        expect: Expect,
    },
}

/// Condition on a record, checked before a command is carried out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Expect {
    /// No condition.
    #[default]
    Any,
    /// The record must not exist.
    Absent,
    /// The record must have exactly this version.
    Version(u64),
}

impl Command {
    /// Returns the first wire version that has this command and the kind of record in it.
    #[must_use]
    pub fn since(&self) -> u16 {
        match self {
            Self::Form(_)
            | Self::ReplaceCluster { .. }
            | Self::RegisterNode { .. }
            | Self::SetNodeRole { .. }
            | Self::SetRegionState { .. }
            | Self::SetRegionWeight { .. }
            | Self::RegisterReplica { .. }
            | Self::SetReplicaState { .. }
            | Self::SetReplicaWeight { .. }
            | Self::RenewLeases { .. }
            | Self::ExpireLeases { .. }
            | Self::ReportHealth { .. }
            | Self::RevokeKey { .. }
            | Self::HotBlocks { .. }
            | Self::RotatePrefixKey { .. }
            | Self::LeaseShares { .. }
            | Self::DeclareCountry { .. }
            | Self::DeclareOperators { .. }
            | Self::EnforceMembership
            | Self::SetNodeOperators { .. }
            | Self::JoinNode { .. } => 1,
            Self::RecordOrder { .. } => RECORD_ORDER,
            Self::ChangeRollout { .. } => WIRE_ROLLOUT,
            Self::Put { item, .. } => item.since(),
            Self::Remove { key, .. } => key.since(),
        }
    }

    /// Returns true for commands that nodes propose over and over. Such commands can be repeated
    /// without harm, so they are not remembered by request id, and they are audited only if they
    /// change a record.
    #[must_use]
    pub fn is_routine(&self) -> bool {
        matches!(
            self,
            Self::RenewLeases { .. }
                | Self::ExpireLeases { .. }
                | Self::ReportHealth { .. }
                | Self::HotBlocks { .. }
                | Self::LeaseShares { .. }
                | Self::DeclareCountry { .. }
        )
    }

    /// Returns true for commands that only improve routing. They have the lowest priority.
    #[must_use]
    pub fn is_hint(&self) -> bool {
        matches!(self, Self::HotBlocks { .. })
    }

    /// Returns true for commands that make the state larger. They are refused while the state is
    /// full.
    pub(crate) fn is_growth(&self) -> bool {
        matches!(
            self,
            Self::Form(_)
                | Self::RegisterNode { .. }
                | Self::JoinNode { .. }
                | Self::RegisterReplica { .. }
                | Self::Put { .. }
        )
    }
}
