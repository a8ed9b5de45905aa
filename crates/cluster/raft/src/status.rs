//! Status of a node's log.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use openraft::ServerState;
use openraft::async_runtime::watch::WatchReceiver;
use spillway_types::{ClusterId, DiskId, NodeId};

use crate::disk::{DiskError, DiskTimes};
use crate::ids::Member;
use crate::machine::Machine;
use crate::net::{Context, LeaderContact};
use crate::rules::isolation::Voice;
use crate::state_machine::Raft;
use crate::trouble::Trouble;
use crate::wire::Ballot;

/// Time for which a node may lack entries that its current leader had committed. A snapshot on a
/// slow path usually takes less.
const BEHIND_MAX: Duration = Duration::from_secs(15);

/// Role of a node in the cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Role {
    /// The node follows without a vote, or is in no cluster yet. // => Follower
    Learner,
    /// The node follows. // => (Candidate | Learner)
    Follower,
    /// The node is a candidate in an election. // => (Leader | Follower)
    Candidate,
    /// The node leads, and a quorum has answered within its lease.
    /// // => (IsolatedLeader | Follower)
    Leader,
    /// The node was elected and no quorum has answered for its lease. Another node may lead.
    /// // => (Leader | Follower)
    IsolatedLeader,
    /// The log has stopped. // end
    Stopped,
}

/// Status of a node's log.
#[derive(Clone, Debug)]
pub struct Status {
    /// This node.
    pub node: NodeId,
    /// Disk of this node.
    pub disk: DiskId,
    /// Cluster of this node; `None` before it is in one.
    pub cluster: Option<ClusterId>,
    /// Role of this node.
    pub role: Role,
    /// The latest term that it knows.
    pub term: u64,
    /// The leader of that term, while there is contact with it: this node if a quorum answers it,
    /// another node if it sent a message within its lease. `None` during an election. This does not
    /// prove that the node leads now.
    pub leader: Option<NodeId>,
    /// The last entry in the log.
    pub last_index: Option<u64>,
    /// The last entry that this node knows to be on most disks.
    pub committed_index: Option<u64>,
    /// The last entry that was carried out here.
    pub applied_index: Option<u64>,
    /// The last entry in a snapshot.
    pub snapshot_index: Option<u64>,
    /// The last entry that is gone from the log.
    pub purged_index: Option<u64>,
    /// Greatest possible age of this node's knowledge: time since a quorum confirmed it as leader,
    /// or confirmed the leader that it follows. `None` if neither ever happened.
    pub age: Option<Duration>,
    /// All members.
    pub members: BTreeMap<NodeId, Member>,
    /// Members with a vote; of both sets while one replaces the other.
    pub voters: BTreeSet<NodeId>,
    /// True while one set of voters is being replaced by another.
    pub is_joint: bool,
    /// Of a leader: up to where each other member has the log.
    pub matched: BTreeMap<NodeId, Option<u64>>,
    /// Bytes of entries in memory and in the log's file.
    pub log_bytes: usize,
    /// Reason why the log has stopped, or why this node is in no cluster.
    pub fault: Option<String>,
    /// Time since this node's part in the cluster started.
    pub up: Duration,
    /// Problems other than faults that an operator has to know of.
    pub troubles: Vec<Trouble>,
    /// True if this node must not be asked what the cluster agrees on: its state differs, or it
    /// receives from a leader and has not followed it for 15 s.
    pub is_misled: bool,
    /// Times that the disk takes.
    pub disk_times: DiskTimes,
}

impl Status {
    /// Returns the status of a node that has no log yet, since no cluster has given it a number.
    #[must_use]
    pub fn outside(disk: DiskId) -> Self {
        Self {
            node: NodeId(0),
            disk,
            cluster: None,
            role: Role::Learner,
            term: 0,
            leader: None,
            last_index: None,
            committed_index: None,
            applied_index: None,
            snapshot_index: None,
            purged_index: None,
            age: None,
            members: BTreeMap::new(),
            voters: BTreeSet::new(),
            is_joint: false,
            matched: BTreeMap::new(),
            log_bytes: 0,
            fault: None,
            up: Duration::ZERO,
            troubles: Vec::new(),
            is_misled: false,
            disk_times: DiskTimes::default(),
        }
    }
}

pub(crate) fn status<M: Machine>(
    raft: &Raft<M>,
    context: &Context,
    heard: &LeaderContact,
    applied_index: Option<u64>,
) -> Status {
    let metrics = raft.metrics().borrow_watched().clone();
    let voice = *context.voice.borrow();
    let disk_fault = context.log.fault();
    let stopped = metrics.running_state.as_ref().err().map(ToString::to_string);
    // The fault of the disk is the cause; openraft only reports that its storage failed.
    let fault = disk_fault.as_ref().map(ToString::to_string).or(stopped);
    let role = match metrics.state {
        _ if fault.is_some() => Role::Stopped,
        ServerState::Learner => Role::Learner,
        ServerState::Follower => Role::Follower,
        ServerState::Candidate => Role::Candidate,
        ServerState::Leader if voice == Voice::Confirmed => Role::Leader,
        ServerState::Leader => Role::IsolatedLeader,
        ServerState::Shutdown => Role::Stopped,
    };
    let members = metrics.membership_config.membership();
    let replication = metrics.replication.iter().flatten();
    let mut troubles = context.comparison.troubles(context.node, members, context.now());
    let lacking = match &disk_fault {
        None => lacking(context, heard, applied_index).filter(|lacking| *lacking > BEHIND_MAX),
        // A full disk is no reason to serve no clients.
        Some(_) => None,
    };
    troubles.extend(lacking.map(|lacking| Trouble::Behind { lacking }));
    let is_apart = disk_fault.as_ref().is_some_and(DiskError::is_apart);
    let is_own = |trouble: &Trouble| matches!(trouble, Trouble::StateDiffers { is_own: true, .. });
    if is_apart
        && !troubles.iter().any(is_own)
        && let Some(own) = members.get_node(&context.node)
    {
        troubles.push(Trouble::StateDiffers { node: own.name.clone(), is_own: true });
    }
    let is_misled = lacking.is_some() || troubles.iter().any(is_own);
    Status {
        node: context.node,
        disk: context.disk,
        cluster: context.log.cluster(),
        role,
        term: metrics.current_term,
        leader: metrics.current_leader.filter(|leader| match *leader == context.node {
            true => role == Role::Leader,
            false => heard.age().is_some_and(|age| age < context.timing().lease()),
        }),
        last_index: metrics.last_log_index,
        committed_index: metrics.local_committed.map(|id| id.index),
        applied_index,
        snapshot_index: metrics.snapshot.map(|id| id.index),
        purged_index: metrics.purged.map(|id| id.index),
        age: age(context, heard, applied_index),
        members: members.nodes().map(|(id, member)| (*id, member.clone())).collect(),
        voters: members.voter_ids().collect(),
        is_joint: members.get_joint_config().len() > 1,
        matched: replication
            .filter(|(id, _)| **id != context.node)
            .map(|(id, matched)| (*id, matched.map(|at| at.index)))
            .collect(),
        log_bytes: context.log.bytes(),
        fault,
        up: context.now(),
        is_misled,
        troubles,
        disk_times: DiskTimes::default(),
    }
}

/// Returns the greatest possible age of this node's knowledge. Knowledge from a time as leader
/// still counts for a follower.
fn age(context: &Context, heard: &LeaderContact, applied_index: Option<u64>) -> Option<Duration> {
    let applied_next = applied_index.map_or(0, |index| index + 1);
    let word = context.word().filter(|word| word.next_index <= applied_next);
    let as_of = heard.as_of(applied_next).max(word.map(|word| word.as_of))?;
    Some(context.now().saturating_sub(as_of))
}

/// Returns the time for which this node has lacked entries that the current leader had committed.
fn lacking(
    context: &Context,
    heard: &LeaderContact,
    applied_index: Option<u64>,
) -> Option<Duration> {
    // A node that receives nothing is cut off. That differs from a node that does not follow.
    heard.age().filter(|age| *age < context.timing().lease())?;
    heard.lacking(applied_index.map_or(0, |index| index + 1))
}

/// Lets nothing rest on the followers' promises any more: the lead is about to be handed over to
/// `to`.
pub(crate) fn give_up_lease<M: Machine>(raft: &Raft<M>, context: &Context, to: NodeId) {
    let ballot = Ballot::from(&raft.metrics().borrow_watched().vote);
    context.want(ballot, to);
    context.followers.send_modify(|followers| followers.give_up(ballot));
}

/// The leader of the latest term, as far as this node knows.
pub(crate) fn leader<M: Machine>(raft: &Raft<M>) -> Option<NodeId> {
    raft.metrics().borrow_watched().current_leader
}

/// A member, as the latest members in the log have it.
pub(crate) fn member<M: Machine>(raft: &Raft<M>, id: NodeId) -> Option<Member> {
    raft.metrics().borrow_watched().membership_config.membership().get_node(&id).cloned()
}
