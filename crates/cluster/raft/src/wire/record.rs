//! Entries, votes and members in the form used on the wire and on disk.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use spillway_codec::Wire;
use spillway_types::{DiskId, NodeId, NodeName};

use crate::ids::Member;
use crate::raft::{CommandFrame, Entry, LogId, Members, Payload, Vote};

/// A position in the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) struct Point {
    pub(crate) term: u64,
    pub(crate) index: u64,
}

/// Vote of a node, and whether its candidate has won.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Ballot {
    pub(crate) term: u64,
    pub(crate) node: NodeId,
    pub(crate) is_won: bool,
}

/// Members of the cluster.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct MembersRecord {
    /// The voters; two sets while one replaces the other.
    voters: Vec<BTreeSet<NodeId>>,
    members: BTreeMap<NodeId, MemberRecord>,
}

/// Member of the cluster.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct MemberRecord {
    name: String,
    region: String,
    #[serde(with = "crate::wire::number")]
    disk: DiskId,
}

/// Contents of an entry.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
enum Contents {
    Blank,
    Command(Bytes),
    Members(MembersRecord),
}

/// Entry of the log.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct EntryRecord {
    at: Point,
    contents: Contents,
}

impl Wire for EntryRecord {
    const KIND: u16 = 0x0401;
    const VERSION: u16 = 1;
    /// A command, or the members of a cluster of about 2,000 nodes.
    const BYTES_MAX: usize = 256 << 10;
}

/// Members that this version can't make use of.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the members contradict each other: {0}")]
pub(crate) struct MembersError(String);

impl EntryRecord {
    pub(crate) fn at(&self) -> Point {
        self.at
    }

    /// Returns the entry as openraft has it.
    pub(crate) fn into_entry(self) -> Result<Entry, MembersError> {
        let payload = match self.contents {
            Contents::Blank => Payload::Blank,
            Contents::Command(bytes) => Payload::Normal(CommandFrame(bytes)),
            Contents::Members(members) => Payload::Membership(members.try_into()?),
        };
        Ok(Entry { log_id: self.at.into(), payload })
    }

    /// Returns the members, if the entry is about them.
    pub(crate) fn members(&self) -> Option<&MembersRecord> {
        match &self.contents {
            Contents::Members(members) => Some(members),
            Contents::Blank | Contents::Command(_) => None,
        }
    }

    /// Returns an entry with the members of the cluster.
    pub(crate) fn of_members(at: Point, members: MembersRecord) -> Self {
        Self { at, contents: Contents::Members(members) }
    }
}

impl From<&Entry> for EntryRecord {
    fn from(entry: &Entry) -> Self {
        let contents = match &entry.payload {
            Payload::Blank => Contents::Blank,
            Payload::Normal(CommandFrame(bytes)) => Contents::Command(bytes.clone()),
            Payload::Membership(members) => Contents::Members(members.into()),
        };
        Self { at: entry.log_id.into(), contents }
    }
}

impl From<LogId> for Point {
    fn from(id: LogId) -> Self {
        Self { term: id.leader_id.term, index: id.index }
    }
}

impl From<Point> for LogId {
    fn from(point: Point) -> Self {
        Self::new_term_index(point.term, point.index)
    }
}

impl From<&Vote> for Ballot {
    fn from(vote: &Vote) -> Self {
        Self { term: vote.leader_id.term, node: vote.leader_id.voted_for, is_won: vote.committed }
    }
}

impl From<Ballot> for Vote {
    fn from(ballot: Ballot) -> Self {
        if ballot.is_won {
            Self::new_committed(ballot.term, ballot.node)
        } else {
            Self::new(ballot.term, ballot.node)
        }
    }
}

impl MembersRecord {
    /// Returns a record with a single voter and no other member.
    pub(crate) fn only(id: NodeId, member: &Member) -> Self {
        Self { voters: vec![[id].into()], members: [(id, member.into())].into() }
    }

    /// Returns the name of a member; `None` if there is no such member.
    pub(crate) fn name_of(&self, id: NodeId) -> Option<NodeName> {
        self.members.get(&id).map(|member| member.name.as_str().into())
    }
}

impl From<&Members> for MembersRecord {
    fn from(members: &Members) -> Self {
        Self {
            voters: members.get_joint_config().clone(),
            members: members.nodes().map(|(id, member)| (*id, member.into())).collect(),
        }
    }
}

impl TryFrom<MembersRecord> for Members {
    type Error = MembersError;

    fn try_from(record: MembersRecord) -> Result<Self, MembersError> {
        let members: BTreeMap<NodeId, Member> =
            record.members.into_iter().map(|(id, member)| (id, member.into())).collect();
        Self::new(record.voters, members).map_err(|error| MembersError(error.to_string()))
    }
}

impl From<&Member> for MemberRecord {
    fn from(member: &Member) -> Self {
        Self {
            name: member.name.as_str().to_owned(),
            region: member.region.as_str().to_owned(),
            disk: member.disk,
        }
    }
}

impl From<MemberRecord> for Member {
    fn from(record: MemberRecord) -> Self {
        Self {
            name: record.name.as_str().into(),
            region: record.region.as_str().into(),
            disk: record.disk,
        }
    }
}
