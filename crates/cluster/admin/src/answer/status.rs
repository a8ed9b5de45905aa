//! Status of the log: leader, members, progress.

use http::StatusCode;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use spillway_control_plane::ControlPlane;
use spillway_raft::{NodeId, Role, Status};
use spillway_types::NodeName;

use super::cluster::{Cluster, leader_of};
use super::freshness::{Freshness, whole_ms};
use crate::call::AdminCall;
use crate::error::{ApiError, LeaderHint};
use crate::fault;
use crate::reply::{Reply, json};

/// Status of the log, as this node knows it.
#[derive(Debug, Default, Serialize, Deserialize, JsonSchema)]
pub(crate) struct StatusAnswer {
    /// Freshness of the answer: a status is always stale.
    #[serde(flatten)]
    pub(crate) freshness: Freshness,
    /// This node.
    pub(crate) node: MemberInfo,
    /// Id of the cluster; null before it is formed.
    pub(crate) cluster: Option<String>,
    /// `learner`, `follower`, `candidate`, `leader`, `isolated_leader` or `stopped`.
    pub(crate) role: String,
    /// The latest term.
    pub(crate) term: u64,
    /// The leader in that term, as far as this node knows.
    pub(crate) leader: Option<LeaderHint>,
    /// Index of the last entry in the log.
    pub(crate) last_index: Option<u64>,
    /// Index of the last entry known to be on a majority of disks.
    pub(crate) committed_index: Option<u64>,
    /// Index of the last entry carried out here.
    pub(crate) applied_index: Option<u64>,
    /// Index of the last entry in a snapshot.
    pub(crate) snapshot_index: Option<u64>,
    /// Digest of the state: equal on all nodes with equal `applied_index`.
    pub(crate) digest: String,
    /// Bytes of entries in the log's file.
    pub(crate) log_bytes: u64,
    /// Time for which the disk has not answered a write or an opening; null if none is under way.
    pub(crate) disk_waiting_ms: Option<u64>,
    /// All members.
    pub(crate) members: Vec<MemberInfo>,
    /// True while one set of voters is being replaced by another.
    pub(crate) is_joint: bool,
    /// Reason why the log has stopped; null if it runs.
    pub(crate) fault: Option<String>,
    /// Troubles of disks and states in sentences: a disk from the past, a state that differs, two
    /// processes with one name, a node that does not follow.
    #[serde(default)]
    pub(crate) troubles: Vec<String>,
}

/// A member of the log.
#[derive(Debug, Default, Serialize, Deserialize, JsonSchema)]
pub(crate) struct MemberInfo {
    /// Number of the node.
    pub(crate) id: u64,
    /// Name of the node; empty if it is no member yet.
    pub(crate) name: String,
    /// Region of the node.
    pub(crate) region: String,
    /// True if the node votes.
    pub(crate) is_voter: bool,
    /// Index of the last entry that the member has; known to the leader alone.
    pub(crate) matched_index: Option<u64>,
}

/// The leader, as far as this node knows.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct LeaderAnswer {
    /// The leader; null if this node knows none.
    pub(crate) leader: Option<LeaderHint>,
    /// The latest term.
    pub(crate) term: u64,
}

/// Order to hand over the leadership.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct TransferOrder {
    /// Name of the node that is to lead; it must have a vote.
    #[schemars(regex(pattern = crate::patterns::NAME))]
    pub(crate) to: String,
}

pub(super) fn status(cluster: &Cluster<'_>) -> Reply {
    json(StatusCode::OK, &status_answer(&cluster.control_plane))
}

/// Returns the status of the log, as this node knows it.
pub(super) fn status_answer(control_plane: &ControlPlane) -> StatusAnswer {
    let status = control_plane.status();
    let (digest, applied_index) = control_plane.digest();
    let age_ms = status.age.map(whole_ms);
    // No other node was asked.
    let consistency = "stale".to_owned();
    let ids = status.members.keys();
    let leader = leader_of(control_plane);
    // The first leader of a cluster takes no orders before it has formed the cluster.
    let shown = match (status.role, &leader) {
        (Role::Leader, None) => Role::Candidate,
        (role, _) => role,
    };
    StatusAnswer {
        freshness: Freshness { index: applied_index.unwrap_or(0), age_ms, consistency },
        node: member(&status, status.node),
        cluster: status.cluster.map(|id| id.to_string()),
        role: role(shown).to_owned(),
        term: status.term,
        leader,
        last_index: status.last_index,
        committed_index: status.committed_index,
        applied_index,
        snapshot_index: status.snapshot_index,
        digest: format!("{digest:032x}"),
        log_bytes: status.log_bytes as u64,
        disk_waiting_ms: status.disk_times.waiting.map(whole_ms),
        members: ids.map(|id| member(&status, *id)).collect(),
        is_joint: status.is_joint,
        fault: status.fault.clone(),
        troubles: status.troubles.iter().map(ToString::to_string).collect(),
    }
}

pub(super) fn leader(cluster: &Cluster<'_>) -> Reply {
    let term = cluster.control_plane.status().term;
    json(StatusCode::OK, &LeaderAnswer { leader: cluster.leader(), term })
}

pub(super) async fn transfer(cluster: &Cluster<'_>, call: &AdminCall) -> Result<Reply, ApiError> {
    let TransferOrder { to } = call.json()?;
    let to = NodeName::from(to.as_str());
    let transfer = cluster.control_plane.transfer_leader(&to, cluster.config.time_limit);
    transfer.await.map_err(|error| fault::of_transfer(error, cluster.leader()))?;
    Ok(leader(cluster))
}

/// Returns the order to hand over in words.
pub(super) fn transfer_text(call: &AdminCall) -> String {
    let to = call.json::<TransferOrder>().map(|order| order.to).unwrap_or_default();
    format!("hand the lead over to {to}")
}

fn member(status: &Status, id: NodeId) -> MemberInfo {
    let member = status.members.get(&id);
    MemberInfo {
        id: id.0,
        name: member.map(|member| member.name.to_string()).unwrap_or_default(),
        region: member.map(|member| member.region.to_string()).unwrap_or_default(),
        is_voter: status.voters.contains(&id),
        matched_index: status.matched.get(&id).copied().flatten(),
    }
}

fn role(role: Role) -> &'static str {
    match role {
        Role::Learner => "learner",
        Role::Follower => "follower",
        Role::Candidate => "candidate",
        Role::Leader => "leader",
        Role::IsolatedLeader => "isolated_leader",
        Role::Stopped => "stopped",
    }
}
