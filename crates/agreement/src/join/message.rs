//! What is asked at a gate, and what is answered.

use serde::{Deserialize, Serialize};
use spillway_codec::Wire;
use spillway_control::{ClusterId, NodeId, NodeSpec, Refusal, TokenProof, TokenSignature};
use spillway_types::{NodeName, RegionName};

/// What a node asks that is no peer, or may be none any more.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Question {
    /// The cluster that its folder is of, or that it signed for; none if that is empty.
    pub(super) cluster: Option<ClusterId>,
    /// The node as it presents itself.
    pub(super) node: NodeSpec,
    pub(super) wish: Wish,
}

/// What it wants. New variants go to the end, and nodes that don't know them give no answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Wish {
    /// To know where it stands. Nothing is written.
    Standing,
    /// To be a member: without a token, or by one where older nodes are in the cluster.
    Join(Option<TokenProof>),
    /// To know which cluster to sign for. Nothing is written.
    Cluster,
    /// To be a member by a token, with a signature for this cluster and this very node.
    JoinSigned(TokenSignature),
}

/// What is answered. New variants go to the end, and answer new wishes alone.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Answer {
    /// It is a member from now on, or was already.
    Member(Membership),
    /// It is none, and will be none unless somebody does something.
    Refused(Refusal),
    /// The node that was asked is in no cluster yet.
    NotFormed,
    /// Nothing can be written now, or nobody knows whether it was. Another try does no harm.
    NotNow(String),
    /// The node that asked is no member. Which cluster this is, and what it takes.
    Cluster {
        cluster: ClusterId,
        /// Whether nodes join by signatures. Otherwise an older node is in the cluster.
        is_signed: bool,
    },
}

/// What a member needs to begin with.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Membership {
    pub(super) cluster: ClusterId,
    /// Its number, now and for ever.
    pub(super) number: NodeId,
    /// All other members.
    pub(super) others: Vec<Contact>,
}

/// Where a member is reached.
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

impl Wire for Answer {
    const KIND: u16 = 0x0502;
    const VERSION: u16 = 1;
    /// 512 members with the longest names and addresses.
    const BYTES_MAX: usize = 512 << 10;
}
