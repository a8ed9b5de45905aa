//! Who leads, and how far the log has come.

use http::StatusCode;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use spillway_consensus::{NodeId, Role, Status};
use spillway_types::NodeName;

use super::{Cluster, Freshness, whole_ms};
use crate::call::Call;
use crate::error::{ApiError, LeaderHint};
use crate::fault;
use crate::reply::{Reply, json};

/// What a node knows of the log.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct StatusAnswer {
    /// How fresh it is: a status is always stale.
    #[serde(flatten)]
    pub(crate) freshness: Freshness,
    /// This node.
    pub(crate) node: MemberInfo,
    /// The cluster's id, once there is one.
    pub(crate) cluster: Option<String>,
    /// `learner`, `follower`, `candidate`, `leader`, `isolated_leader` or `stopped`.
    pub(crate) role: String,
    /// The latest term.
    pub(crate) term: u64,
    /// Who leads in that term, as far as this node knows.
    pub(crate) leader: Option<LeaderHint>,
    /// The last entry in the log.
    pub(crate) last_index: Option<u64>,
    /// The last entry known to be on most disks.
    pub(crate) committed_index: Option<u64>,
    /// The last entry that was carried out here.
    pub(crate) applied_index: Option<u64>,
    /// The last entry in a snapshot.
    pub(crate) snapshot_index: Option<u64>,
    /// Equal on all nodes with equal `applied_index`.
    pub(crate) digest: String,
    /// Bytes of entries in the log's file.
    pub(crate) log_bytes: u64,
    /// All members.
    pub(crate) members: Vec<MemberInfo>,
    /// Whether one set of voters is being replaced by another.
    pub(crate) is_joint: bool,
    /// Why the log has stopped.
    pub(crate) fault: Option<String>,
}

/// A member of the log.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct MemberInfo {
    /// Its number.
    pub(crate) id: u64,
    /// Its name; empty if it is no member yet.
    pub(crate) name: String,
    /// Its region.
    pub(crate) region: String,
    /// Whether it votes.
    pub(crate) is_voter: bool,
    /// Of a leader: the last entry that the member has.
    pub(crate) matched_index: Option<u64>,
}

/// Who leads, as far as this node knows.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct LeaderAnswer {
    /// None if it knows of nobody.
    pub(crate) leader: Option<LeaderHint>,
    /// The latest term.
    pub(crate) term: u64,
}

/// Who is to lead.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct TransferOrder {
    /// The name of a node with a vote.
    #[schemars(regex(pattern = crate::patterns::NAME))]
    pub(crate) to: String,
}

pub(super) fn status(cluster: &Cluster<'_>) -> Reply {
    let status = cluster.agreement.status();
    let (digest, applied_index) = cluster.agreement.digest();
    let age_ms = status.age.map(whole_ms);
    let consistency = "stale".to_owned();
    let ids = status.members.keys();
    let answer = StatusAnswer {
        freshness: Freshness { index: applied_index.unwrap_or(0), age_ms, consistency },
        node: member(&status, status.node),
        cluster: status.cluster.map(|id| id.to_string()),
        role: role(status.role).to_owned(),
        term: status.term,
        leader: cluster.leader(),
        last_index: status.last_index,
        committed_index: status.committed_index,
        applied_index,
        snapshot_index: status.snapshot_index,
        digest: format!("{digest:032x}"),
        log_bytes: status.log_bytes as u64,
        members: ids.map(|id| member(&status, *id)).collect(),
        is_joint: status.is_joint,
        fault: status.fault.clone(),
    };
    json(StatusCode::OK, &answer)
}

pub(super) fn leader(cluster: &Cluster<'_>) -> Reply {
    let term = cluster.agreement.status().term;
    json(StatusCode::OK, &LeaderAnswer { leader: cluster.leader(), term })
}

pub(super) async fn transfer(cluster: &Cluster<'_>, call: &Call) -> Result<Reply, ApiError> {
    let TransferOrder { to } = call.json()?;
    let to = NodeName::from(to.as_str());
    let transfer = cluster.agreement.transfer_leader(&to, cluster.config.time_limit);
    transfer.await.map_err(|error| fault::of_transfer(error, cluster.leader()))?;
    tracing::info!(%to, by = call.caller.name, "the lead was handed over");
    Ok(leader(cluster))
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
