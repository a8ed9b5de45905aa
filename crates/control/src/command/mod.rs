//! What can be done to the state.

mod describe;
mod item;
mod parts;

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};
use spillway_prefix::HotDelta;
use spillway_quota::Statement;
use spillway_types::{Country, NodeName, RegionName};

use crate::wire::{WIRE_DISCOVERY, WIRE_HOT, WIRE_MEMBERS, WIRE_RESIDENCY, WIRE_SHARES};
use crate::{
    ClusterId, KeyId, NodeId, NodeRole, RecordKey, RegionState, ReplicaId, ReplicaState,
    TokenSignature,
};

pub use item::Item;
pub use parts::{Form, LeaseRenewal, NodeSpec, Observation, ReplicaSpec, TokenProof, TokenTerms};

/// One change. The order of variants and fields is the format: new variants go to the end, with
/// the wire version that has them in [`Command::since`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Command {
    /// Forms the cluster. The first command; everything else is refused before it.
    Form(Form),
    /// Gives the cluster another id, after it was made anew from one node's disk.
    ReplaceCluster {
        /// The id it has.
        from: ClusterId,
        /// The id it gets, so that nodes of the old cluster don't mix with it.
        to: ClusterId,
    },
    /// A node joins, or tells that its address or version changed.
    RegisterNode {
        /// The node.
        node: NodeSpec,
        /// What lets it in if it is new, no operator adds it, and an older node is in the cluster.
        /// Otherwise see [`Command::JoinNode`].
        token: Option<TokenProof>,
    },
    /// Whether a node may vote.
    SetNodeRole {
        /// Which.
        node: NodeId,
        /// What it should be.
        role: NodeRole,
        /// What is expected.
        expect: Expect,
    },
    /// Drains, evacuates or activates a region.
    SetRegionState {
        /// Which.
        region: RegionName,
        /// What it should be.
        state: RegionState,
        /// What is expected.
        expect: Expect,
    },
    /// How much of the spilled work a region takes, in thousandths.
    SetRegionWeight {
        /// Which.
        region: RegionName,
        /// 1,000 is the usual share, 0 none.
        weight_permille: u16,
        /// What is expected.
        expect: Expect,
    },
    /// A replica is there, or is there anew.
    RegisterReplica {
        /// Which.
        id: ReplicaId,
        /// What it is.
        spec: ReplicaSpec,
        /// Differs for each start of the replica; 0 for one of a config file. The same spec
        /// with the same incarnation changes nothing.
        incarnation: u64,
        /// What is expected.
        expect: Expect,
    },
    /// Drains a replica, says that it is drained, or takes it back.
    SetReplicaState {
        /// Which.
        id: ReplicaId,
        /// What it should be.
        state: ReplicaState,
        /// What is expected.
        expect: Expect,
    },
    /// An operator's weight of a replica, instead of its own.
    SetReplicaWeight {
        /// Which.
        id: ReplicaId,
        /// 1 to 1,000; none for its own.
        weight: Option<u32>,
        /// What is expected.
        expect: Expect,
    },
    /// Replicas are still there.
    RenewLeases {
        /// Whose.
        region: RegionName,
        /// Which; at most [`crate::BATCH_MAX`].
        leases: Vec<LeaseRenewal>,
    },
    /// Takes out the region's replicas whose lease ended by the region's clock. The region proposes
    /// it while it has overdue leases, at most 5 s apart.
    ExpireLeases {
        /// Whose.
        region: RegionName,
    },
    /// What the proposing node sees of replicas of its region.
    ReportHealth {
        /// Whose.
        region: RegionName,
        /// The nodes of the region that the proposer hears; itself may be left out.
        live: BTreeSet<NodeName>,
        /// At most [`crate::BATCH_MAX`].
        observations: Vec<Observation>,
    },
    /// Ends an API key for good.
    RevokeKey {
        /// Which.
        key: KeyId,
        /// What is expected.
        expect: Expect,
    },
    /// Writes a record as a whole.
    Put {
        /// Key and value.
        item: Item,
        /// What is expected.
        expect: Expect,
    },
    /// Removes a record, and what belongs to it.
    Remove {
        /// Which.
        key: RecordKey,
        /// What is expected.
        expect: Expect,
    },
    /// Which blocks of prompts became hot in a region, and which are so no more. A hint: without it
    /// routing is worse, but right.
    HotBlocks {
        /// Whose.
        region: RegionName,
        /// Of which key the hashes are: the setting [`KEY_EPOCH`]. Others are refused.
        key_epoch: u64,
        /// At most [`crate::HOT_BATCH_MAX`] of each kind.
        delta: HotDelta,
    },
    /// Has prompts hashed with the next key: counts the setting [`KEY_EPOCH`] up. A command of its
    /// own, so that a repeated request does not count twice.
    RotatePrefixKey {
        /// What is expected of the setting.
        expect: Expect,
    },
    /// What a node's process has, gives and needs of limits, see docs/limits.md.
    LeaseShares {
        /// Whose.
        region: RegionName,
        /// What it says.
        said: Statement,
    },
    /// A node says in which country its region is, by its config. What is said already stays.
    DeclareCountry {
        /// Whose.
        region: RegionName,
        /// Where it is.
        country: Country,
    },
    /// A node says whether operators' orders are to come from it, by its config. Its first word
    /// counts, and only where nobody else has decided it: see [`crate::NodeRight`].
    DeclareOperators {
        /// Whether they are.
        is_operator: bool,
    },
    /// From now on only members may propose, and only nodes with that right operators' orders.
    EnforceMembership,
    /// Lets operators' orders come from a node, or forbids it.
    SetNodeOperators {
        /// Which.
        node: NodeId,
        /// Whether they may.
        is_operator: bool,
        /// What is expected of the node's record.
        expect: Expect,
    },
    /// A node joins by token.
    JoinNode {
        /// The node.
        node: NodeSpec,
        /// Signed by the token's holder for exactly this node and cluster.
        token: TokenSignature,
    },
}

/// The setting that counts the keys with which prompts are hashed. A change empties the hot trie.
pub const KEY_EPOCH: &str = "prefix.key_epoch";

/// The setting that says how long what nodes lease of limits is theirs.
pub const LEASE_MS: &str = "limits.lease_ms";

/// The setting that says how long a request may run, where a limit counts requests at a time.
pub const PLACE_MS: &str = "limits.place_ms";

/// What a record must be like for a command to be carried out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Expect {
    /// Anything.
    #[default]
    Any,
    /// It must not exist.
    Absent,
    /// It must have exactly this version.
    Version(u64),
}

impl Command {
    /// The first wire version that has this command.
    #[must_use]
    pub fn since(&self) -> u16 {
        match self {
            Self::RegisterReplica { spec, .. } if spec.models.is_empty() => WIRE_DISCOVERY,
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
            | Self::RevokeKey { .. } => 1,
            Self::Put { item, .. } => item.since(),
            Self::Remove { key, .. } => key.since(),
            Self::HotBlocks { .. } | Self::RotatePrefixKey { .. } => WIRE_HOT,
            Self::LeaseShares { .. } => WIRE_SHARES,
            Self::DeclareCountry { .. } => WIRE_RESIDENCY,
            Self::DeclareOperators { .. }
            | Self::EnforceMembership
            | Self::SetNodeOperators { .. }
            | Self::JoinNode { .. } => WIRE_MEMBERS,
        }
    }

    /// Whether nodes propose it over and over. Such commands can be repeated without harm, so they
    /// are not remembered by request id, and they are audited only when they change a record.
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

    /// Whether routing only becomes better by it. Such commands wait for all others.
    #[must_use]
    pub fn is_hint(&self) -> bool {
        matches!(self, Self::HotBlocks { .. })
    }

    /// Whether it makes the state larger. Such commands are refused when it is full.
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
