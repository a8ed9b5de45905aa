//! What can be said of a node's log.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use openraft::ServerState;
use openraft::async_runtime::watch::WatchReceiver;

use crate::disk::DiskFault;
use crate::ids::{ClusterId, DiskId, Member, NodeId};
use crate::machine::Machine;
use crate::net::{Context, Heard};
use crate::proposer::Raft;
use crate::rules::isolation::Voice;
use crate::wire::Ballot;

/// What a node is in the cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Role {
    /// It follows without a vote, or is in no cluster yet. // => Follower
    Learner,
    /// It follows. // => (Candidate | Learner)
    Follower,
    /// It stands for election. // => (Leader | Follower)
    Candidate,
    /// It leads, and a quorum has answered within its lease. // => (IsolatedLeader | Follower)
    Leader,
    /// It was elected and no quorum has answered for its lease. Another one may lead.
    /// // => (Leader | Follower)
    IsolatedLeader,
    /// The log has stopped. // end
    Stopped,
}

/// What can be said of a node's log.
#[derive(Clone, Debug)]
pub struct Status {
    /// This node.
    pub node: NodeId,
    /// Its disk.
    pub disk: DiskId,
    /// Its cluster, once it is in one.
    pub cluster: Option<ClusterId>,
    /// What it is.
    pub role: Role,
    /// The latest term that it knows.
    pub term: u64,
    /// The leader of that term, as far as this node knows. No proof that it leads now.
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
    /// How old this node's knowledge can be: since a quorum confirmed it as leader, or the leader
    /// whose word it has. `None` if neither ever was.
    pub age: Option<Duration>,
    /// All members.
    pub members: BTreeMap<NodeId, Member>,
    /// Those with a vote; of both sets, while one replaces the other.
    pub voters: BTreeSet<NodeId>,
    /// Whether one set of voters is being replaced by another.
    pub is_joint: bool,
    /// Of a leader: up to where each other member has the log.
    pub matched: BTreeMap<NodeId, Option<u64>>,
    /// Bytes of entries in memory and in the log's file.
    pub log_bytes: usize,
    /// Why the log has stopped, or why this node is in no cluster.
    pub fault: Option<String>,
    /// Why, if it is the disk.
    pub disk_fault: Option<DiskFault>,
}

impl Status {
    /// Of a node that has no log yet, since no cluster has given it a number.
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
            disk_fault: None,
        }
    }
}

pub(crate) fn status<M: Machine>(
    raft: &Raft<M>,
    context: &Context,
    heard: &Heard,
    applied_index: Option<u64>,
) -> Status {
    let metrics = raft.metrics().borrow_watched().clone();
    let voice = *context.voice.borrow();
    let disk_fault = context.log.fault();
    let stopped = metrics.running_state.as_ref().err().map(ToString::to_string);
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
    Status {
        node: context.node,
        disk: context.disk,
        cluster: context.log.cluster(),
        role,
        term: metrics.current_term,
        leader: metrics.current_leader,
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
        disk_fault,
    }
}

/// What it knew as a leader counts on when it follows.
fn age(context: &Context, heard: &Heard, applied_index: Option<u64>) -> Option<Duration> {
    let applied_next = applied_index.map_or(0, |index| index + 1);
    let word = context.word().filter(|word| word.next_index <= applied_next);
    let as_of = heard.as_of(applied_next).max(word.map(|word| word.as_of))?;
    Some(context.now().saturating_sub(as_of))
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
