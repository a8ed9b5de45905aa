//! Types that openraft uses. Nothing outside this crate names one of its types.

use std::fmt;

use bytes::Bytes;
use openraft::impls::leader_id_std::LeaderId;
use openraft::type_config::alias::{EntryOf, LogIdOf, SnapshotMetaOf, SnapshotOf, VoteOf};
use openraft::{EntryPayload, Membership};
use spillway_types::NodeId;

use crate::ids::Member;

openraft::declare_raft_types!(
    pub(crate) Types:
        D = CommandFrame,
        R = Answered,
        NodeId = NodeId,
        Node = Member,
        Term = u64,
        // Standard Raft: at most one leader a term, which is what people expect to read in a log.
        LeaderId = LeaderId<u64, NodeId>,
);

pub(crate) type LogId = LogIdOf<Types>;
pub(crate) type Vote = VoteOf<Types>;
pub(crate) type Entry = EntryOf<Types>;
pub(crate) type Payload = EntryPayload<CommandFrame, NodeId, Member>;
pub(crate) type Members = Membership<NodeId, Member>;
pub(crate) type StoredMembers = openraft::type_config::alias::StoredMembershipOf<Types>;
pub(crate) type SnapshotMeta = SnapshotMetaOf<Types>;
pub(crate) type Snapshot = SnapshotOf<Types, Bytes>;

/// The frame of a machine's command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CommandFrame(pub(crate) Bytes);

impl fmt::Display for CommandFrame {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes", self.0.len())
    }
}

/// Result of an entry: the frame of the machine's outcome; `None` for an entry that is no command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Answered {
    pub(crate) outcome: Option<Bytes>,
}
