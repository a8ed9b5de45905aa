//! Questions of the join protocol, and the answers.

use serde::{Deserialize, Serialize};
use spillway_cluster_state::{ClusterId, CommandError, NodeId, NodeSpec, TokenSignature};
use spillway_codec::Wire;
use spillway_types::{NodeName, RegionName};

/// Question of a node that is no peer, or may no longer be one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Question {
    /// Cluster of the node's folder, or the one that it signed for; `None` if the folder is empty.
    pub(super) cluster: Option<ClusterId>,
    /// The node's description of itself.
    pub(super) node: NodeSpec,
    pub(super) wish: Wish,
}

/// Wish of a joining node. New variants go to the end; nodes that don't know them give no answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Wish {
    /// Learn the node's standing. Nothing is written.
    Standing,
    /// To be a member without a token.
    Join,
    /// To know which cluster to sign for. Nothing is written.
    Cluster,
    /// Join by a token, with a signature for this cluster and this very node.
    JoinSigned(TokenSignature),
}

/// Answer of the join protocol. New variants go to the end, and answer new wishes alone.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum JoinAnswer {
    /// The node is a member from now on, or was already.
    Member(Membership),
    /// The node is no member, and cannot become one unless an operator acts.
    Refused(CommandError),
    /// The node that was asked is in no cluster yet.
    NotFormed,
    /// Nothing can be written now, or the result is unknown. Another try does no harm.
    NotNow(String),
    /// The node that asked is no member of this cluster.
    Cluster(ClusterId),
}

/// All that a new member needs to begin.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Membership {
    pub(super) cluster: ClusterId,
    /// Number of the member. It never changes.
    pub(super) number: NodeId,
    /// Contacts of all other members.
    pub(super) others: Vec<Contact>,
}

/// Name and address of a member.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Contact {
    pub(super) name: NodeName,
    pub(super) region: RegionName,
    pub(super) address: String,
}

impl Wire for Question {
    const KIND: u16 = 0x0501;
    const VERSION: u16 = 1;
    /// Names and an address, each limited by the state.
    const BYTES_MAX: usize = 4 << 10;
}

impl Wire for JoinAnswer {
    const KIND: u16 = 0x0502;
    const VERSION: u16 = 1;
    /// 512 members with the longest names and addresses.
    const BYTES_MAX: usize = 512 << 10;
}
