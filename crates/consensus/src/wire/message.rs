//! What nodes say to each other. Each stream begins with an [`Opening`]; then come requests, each
//! answered by one [`Answer`], in order.

use serde::{Deserialize, Serialize};
use spillway_codec::{DecodeError, Wire};

use super::octets::Octets;
use super::record::{Ballot, EntryRecord, MembersRecord, Point};
use super::version;
use crate::ids::{ClusterId, DiskId, NodeId};

/// Bytes of entries in one [`Append`]: what a path of 20 Mbit/s carries in 400 ms.
pub(crate) const APPEND_BYTES_MAX: usize = 1 << 20;

/// What a node says first on a stream: to whom it means to speak, and as whom.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Opening {
    /// The sender's cluster; `None` if it is in none yet.
    pub(crate) cluster: Option<ClusterId>,
    pub(crate) from: NodeId,
    /// Who is meant; `None` is whoever answers, for questions that anybody may ask.
    pub(crate) to: Option<Addressee>,
    pub(crate) purpose: Purpose,
}

/// A node and the disk that it is known by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Addressee {
    pub(crate) node: NodeId,
    /// `None` if the sender does not know it: then nothing may be asked that rests on it.
    pub(crate) disk: Option<DiskId>,
}

/// What follows an opening.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Purpose {
    /// Any number of [`Append`], several under way at a time.
    Append,
    /// One [`Call`].
    Call,
    /// One [`Offer`].
    Snapshot,
}

impl Wire for Opening {
    const KIND: u16 = 0x0402;
    const VERSION: u16 = 1;
    const BYTES_MAX: usize = 256;
}

/// Entries for a follower; none for a heartbeat.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Append {
    pub(crate) ballot: Ballot,
    pub(crate) previous: Option<Point>,
    pub(crate) committed: Option<Point>,
    pub(crate) entries: Vec<EntryRecord>,
    /// What version 1 does not say; its presence asks for a [`Took`].
    pub(crate) news: Option<News>,
}

/// What a leader says beside the entries.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct News {
    /// How old what it says is at most; `None` before it has committed anything itself.
    pub(crate) age: Option<Age>,
    /// Whether to answer what the follower has on disk.
    pub(crate) asks_held: bool,
    /// The heartbeat by which all who follow are to go.
    pub(crate) heartbeat_ms: u32,
}

/// What a leader knows for sure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Age {
    /// So long ago a quorum confirmed it …
    pub(crate) ms: u32,
    /// … and all that was committed by then lies before this index.
    pub(crate) next_index: u64,
}

impl Wire for Append {
    const KIND: u16 = 0x0403;
    const VERSION: u16 = 2;
    /// One entry always goes, however long it is.
    const BYTES_MAX: usize = APPEND_BYTES_MAX + EntryRecord::BYTES_MAX + 1_024;

    fn decode_older(found: u16, payload: &[u8]) -> Result<Self, DecodeError> {
        version::decode_append(found, payload)
    }
}

/// A short question.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Call {
    /// Give me your vote.
    Vote(Candidacy),
    /// Would you give me your vote? Nothing is kept of it.
    PreVote(Candidacy),
    /// Become leader: I want you to.
    Transfer { from: Ballot, to: NodeId, last: Option<Point> },
    /// Up to where must the log be applied for a reader to see all that is committed now?
    ReadIndex,
    /// Put this command into the log.
    Propose { command: Octets, limit_ms: u32 },
    /// Who are you?
    Hello,
    /// Since version 2: I speak up to this version, and you?
    Speaks(u16),
}

/// Who stands for election.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Candidacy {
    pub(crate) ballot: Ballot,
    pub(crate) last: Option<Point>,
    /// Whether the leader of now wants it.
    pub(crate) is_transfer: bool,
}

impl Wire for Call {
    const KIND: u16 = 0x0404;
    const VERSION: u16 = 2;
    const BYTES_MAX: usize = crate::COMMAND_BYTES_MAX + 256;

    fn decode_older(found: u16, payload: &[u8]) -> Result<Self, DecodeError> {
        version::decode_one(found, payload)
    }
}

/// A snapshot that comes on the data connection, under the number `transfer`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Offer {
    pub(crate) ballot: Ballot,
    pub(crate) head: SnapshotHead,
    pub(crate) transfer: u64,
}

impl Wire for Offer {
    const KIND: u16 = 0x0405;
    const VERSION: u16 = 1;
    const BYTES_MAX: usize = EntryRecord::BYTES_MAX;
}

/// What a snapshot holds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct SnapshotHead {
    pub(crate) last: Option<Point>,
    pub(crate) members_at: Option<Point>,
    pub(crate) members: MembersRecord,
    pub(crate) bytes: u64,
    pub(crate) checksum: u32,
}

/// What stands before a snapshot's bytes on the data connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Parcel {
    pub(crate) transfer: u64,
    pub(crate) bytes: u64,
}

impl Wire for Parcel {
    const KIND: u16 = 0x0406;
    const VERSION: u16 = 1;
    const BYTES_MAX: usize = 64;
}

/// What a request came to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Answer {
    /// Nothing was done.
    Refused(Refusal),
    /// The log matches up to there, on disk.
    Appended(Option<Point>),
    /// The entry before those sent is not there.
    Conflict(Point),
    /// There is a later vote.
    HigherVote(Ballot),
    /// A vote was asked for: the voter's vote now, and its last entry.
    Vote { ballot: Ballot, is_granted: bool, last: Option<Point> },
    /// The node will stand for election.
    Transferred,
    /// Reads have to wait for this index.
    ReadIndex(u64),
    /// The command was carried out.
    Proposed { index: u64, outcome: Octets },
    /// The command may have been carried out or still will be.
    Unknown,
    /// The snapshot was taken in; the vote is the receiver's.
    Installed(Ballot),
    /// Who I am.
    Hello(Introduction),
    /// The snapshot that was offered may be sent.
    Ready,
    /// Since version 2: I speak up to this version.
    Speaks(u16),
    /// Since version 2: what became of entries, and more.
    Took(Took),
}

/// The answer to entries with [`News`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Took {
    pub(crate) verdict: Verdict,
    /// For so long from when it received them the follower votes for nobody else, unless the
    /// leader wants it to. 0 if the follower can't promise that.
    pub(crate) promise_ms: u32,
    /// If it was asked for: the follower's last entry on disk while it follows this leader.
    pub(crate) held: Option<Point>,
    /// Of a heartbeat: the follower's round trips to voters.
    pub(crate) round_trips: Vec<RoundTrip>,
}

/// What became of entries.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Verdict {
    /// The log matches up to there, on disk.
    Appended(Option<Point>),
    /// The entry before those sent is not there.
    Conflict(Point),
    /// There is a later vote.
    HigherVote(Ballot),
}

/// How far a node is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct RoundTrip {
    pub(crate) to: NodeId,
    pub(crate) ms: u32,
}

impl Wire for Answer {
    const KIND: u16 = 0x0407;
    const VERSION: u16 = 2;
    const BYTES_MAX: usize = crate::OUTCOME_BYTES_MAX + 256;

    fn decode_older(found: u16, payload: &[u8]) -> Result<Self, DecodeError> {
        version::decode_one(found, payload)
    }
}

/// Who answers a hello.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Introduction {
    pub(crate) node: NodeId,
    pub(crate) disk: DiskId,
    pub(crate) cluster: Option<ClusterId>,
}

/// Why nothing was done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Refusal {
    /// The sender is in another cluster.
    OtherCluster(ClusterId),
    /// Somebody else has this name or number: the sender means a disk that is gone.
    OtherNode(Introduction),
    /// The log says that the sender has another name.
    NotYou,
    /// The receiver is not the leader, or has no quorum any more; perhaps that one is.
    NotLeader(Option<NodeId>),
    /// The receiver can't read the command.
    Unreadable,
    /// The snapshot did not arrive whole.
    Damaged,
    /// The leader's vote or log is not what the receiver can follow now.
    NotNow,
    /// The receiver has stopped.
    Stopped,
    /// The receiver has as much of this under way as it allows.
    Busy,
    /// The command is in another node's name.
    NotYours,
}
