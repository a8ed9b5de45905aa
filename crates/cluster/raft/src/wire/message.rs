//! Messages between nodes. Each stream begins with an [`Opening`]; then come requests, each
//! answered by one [`Answer`], in order.

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use spillway_codec::Wire;
use spillway_types::{ClusterId, DiskId, NodeId};

use super::disk_count::{DiskCount, StateDigest};
use super::record::{Ballot, EntryRecord, MembersRecord, Point};
use super::version::WireVersion;

/// Bytes of entries in one [`Append`]: what a path of 20 Mbit/s carries in 400 ms.
pub(crate) const APPEND_BYTES_MAX: usize = 1 << 20;

/// First message on a stream: names the sender and the node that is meant.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Opening {
    /// The sender's cluster; `None` if it is in none yet.
    #[serde(with = "crate::wire::number::optional")]
    pub(crate) cluster: Option<ClusterId>,
    pub(crate) from: NodeId,
    /// Node that is meant; `None` for any node, in questions that every node may ask.
    pub(crate) to: Option<Addressee>,
    pub(crate) purpose: Purpose,
}

/// A node and the disk that it is known by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Addressee {
    pub(crate) node: NodeId,
    /// `None` if the sender does not know it: then nothing may be asked that rests on it.
    #[serde(with = "crate::wire::number::optional")]
    pub(crate) disk: Option<DiskId>,
}

/// Kind of the messages that follow an opening.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Purpose {
    /// Any number of [`Append`], several under way at a time.
    Append,
    /// Exactly one [`Call`].
    Call,
    /// Exactly one [`Offer`].
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
    /// Version that it is written in or was read in; no part of its bytes.
    #[serde(skip)]
    pub(crate) version: WireVersion,
    pub(crate) ballot: Ballot,
    pub(crate) previous: Option<Point>,
    pub(crate) committed: Option<Point>,
    pub(crate) entries: Vec<EntryRecord>,
    pub(crate) news: News,
}

/// Information from a leader beside the entries.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct News {
    /// Age of the leader's knowledge; `None` before it has committed anything itself.
    pub(crate) age: Option<Age>,
    /// True if the follower has to report what it has on disk.
    pub(crate) asks_held: bool,
    /// The heartbeat by which all who follow are to go.
    pub(crate) heartbeat_ms: u32,
}

/// Knowledge of a leader that a quorum has confirmed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Age {
    /// So long ago a quorum confirmed it …
    pub(crate) ms: u32,
    /// … and all that was committed by then lies before this index.
    pub(crate) next_index: u64,
}

impl Wire for Append {
    const KIND: u16 = 0x0403;
    const VERSION: u16 = 1;
    /// Room for the limit of entries and for a single entry of any length, which always goes.
    const BYTES_MAX: usize = APPEND_BYTES_MAX + EntryRecord::BYTES_MAX + 1_024;

    #[cfg(test)]
    fn decode_older(found: u16, payload: &[u8]) -> Result<Self, spillway_codec::DecodeError> {
        super::older::decode_append(found, payload)
    }
}

/// A short question.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Call {
    /// Request for a vote.
    Vote(Candidacy),
    /// Question whether the node would give its vote. Nothing is kept of it.
    PreVote(Candidacy),
    /// Message of a leader that it wants node `to` to lead.
    Transfer { from: Ballot, to: NodeId, last: Option<Point> },
    /// Question for the index up to which a reader has to wait.
    ReadIndex,
    /// Command to put into the log.
    Propose { command: Bytes, limit_ms: u32 },
    /// Question for the identity of a node.
    Hello,
    /// Newest version that the sender uses, and question for the receiver's.
    Speaks(u16),
    /// Question for the ballot that the receiver follows or gave its vote. Programs without it give
    /// no answer.
    Backs,
    /// The sender's knowledge of disks and states, and a question for the receiver's knowledge. A
    /// version that does not know this message ends the stream.
    Compare(Report),
}

/// Report of a node to another one about disks and states.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Report {
    /// Progress of the sender's disk.
    pub(crate) count: DiskCount,
    /// A few digests of the sender's state, with their indices.
    pub(crate) digests: Vec<StateDigest>,
    /// The count that an earlier process of the receiver's disk has reported, if the present one is
    /// behind it.
    pub(crate) ahead: Option<u64>,
    /// True if two processes use the receiver's name.
    pub(crate) is_double: bool,
}

/// Candidacy of a node in an election.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Candidacy {
    pub(crate) ballot: Ballot,
    pub(crate) last: Option<Point>,
    /// True if the present leader wants this candidate.
    pub(crate) is_transfer: bool,
}

impl Wire for Call {
    const KIND: u16 = 0x0404;
    const VERSION: u16 = 1;
    const BYTES_MAX: usize = crate::COMMAND_BYTES_MAX + 256;
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

/// Description of a snapshot.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct SnapshotHead {
    pub(crate) last: Option<Point>,
    pub(crate) members_at: Option<Point>,
    pub(crate) members: MembersRecord,
    pub(crate) bytes: u64,
    pub(crate) checksum: u32,
}

/// Header before a snapshot's bytes on the data connection.
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

/// Answer to a request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Answer {
    /// Nothing was done.
    Refused(CallError),
    /// A vote was asked for: the voter's vote now, and its last entry.
    Vote { ballot: Ballot, is_granted: bool, last: Option<Point> },
    /// The node will start an election.
    Transferred,
    /// Reads have to wait for this index.
    ReadIndex(u64),
    /// The command was carried out.
    Proposed { index: u64, outcome: Bytes },
    /// The command may have been carried out or still will be.
    Unknown,
    /// The snapshot was installed; the vote is the receiver's.
    Installed(Ballot),
    /// Identity of the node that answers.
    Hello(Introduction),
    /// The snapshot that was offered may be sent.
    Ready,
    /// Newest version that the answering node uses.
    Speaks(u16),
    /// Result of entries, and more.
    Took(Took),
    /// The ballot that the node follows or gave its vote; `None` if there is none.
    Backs(Option<Ballot>),
    /// Knowledge of the answering node about disks and states.
    Compared(Report),
}

/// The answer to entries.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Took {
    pub(crate) verdict: Verdict,
    /// Time for which the follower votes for no other node, milliseconds from when it received the
    /// entries, unless the leader wants it to. 0 if the follower can't promise that.
    pub(crate) promise_ms: u32,
    /// If it was asked for: the follower's last entry on disk while it follows this leader.
    pub(crate) held: Option<Point>,
    /// Of a heartbeat: the follower's round trips to voters.
    pub(crate) round_trips: Vec<RoundTrip>,
}

/// Result of entries.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Verdict {
    /// The log matches up to there, on disk.
    Appended(Option<Point>),
    /// The entry before those sent is not there.
    Conflict(Point),
    /// There is a later vote.
    HigherVote(Ballot),
}

/// Round trip from a node to the node `to`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct RoundTrip {
    pub(crate) to: NodeId,
    pub(crate) ms: u32,
}

impl Wire for Answer {
    const KIND: u16 = 0x0407;
    const VERSION: u16 = 1;
    const BYTES_MAX: usize = crate::OUTCOME_BYTES_MAX + 256;

    #[cfg(test)]
    fn decode_older(found: u16, payload: &[u8]) -> Result<Self, spillway_codec::DecodeError> {
        super::older::decode_answer(found, payload)
    }
}

/// Identity of a node that answers a hello.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Introduction {
    pub(crate) node: NodeId,
    #[serde(with = "crate::wire::number")]
    pub(crate) disk: DiskId,
    #[serde(with = "crate::wire::number::optional")]
    pub(crate) cluster: Option<ClusterId>,
}

/// Reason for which nothing was done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum CallError {
    /// The sender is in another cluster.
    OtherCluster(#[serde(with = "crate::wire::number")] ClusterId),
    /// Another node has this name or number: the sender means a disk that is gone.
    OtherNode(Introduction),
    /// According to the log, the sender has another name.
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
