//! Overview of the answering node, its cluster and all regions.

use std::time::SystemTime;

use http::StatusCode;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use spillway_control_plane::ControlPlane;

use super::problem::Problem;
use super::problems::{Sight, problems};
use super::status::{MemberInfo, StatusAnswer, status_answer};
use super::verdict::{self, Health};
use crate::all_nodes::{AllNodes, HistoryScope};
use crate::call::AdminCall;
use crate::error::ApiError;
use crate::overview::{
    CertificateEnd, NodeOverview, NodeProblem, Overview, RegionOverview, ReplicaOverview,
    RouteOverview,
};
use crate::query::Scope;
use crate::reply::{Reply, json};
use crate::requests::FilterField;

/// The answering node and its cluster.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct NodeAnswer {
    /// State in one word.
    pub(crate) health: Health,
    /// State in a sentence, which begins with that word or with what is wrong.
    pub(crate) summary: String,
    /// What is wrong, the most urgent first.
    pub(crate) problems: Vec<Problem>,
    /// The node itself.
    pub(crate) node: NodeOverview,
    /// Nodes of the cluster, this one first; only this one without a cluster.
    pub(crate) nodes: Vec<NodeRow>,
    /// The replicated log, as in `/v1/status`; null if this node has none.
    pub(crate) log: Option<StatusAnswer>,
}

/// A node in a table.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub(crate) struct NodeRow {
    /// Name of the node.
    pub(crate) name: String,
    /// Region of the node.
    pub(crate) region: String,
    /// `leader`, `voter`, `learner`, or `no log` for a node that follows none.
    pub(crate) role: String,
    /// `this node`, `up`, `silent` or `never heard`.
    pub(crate) state: String,
    /// Time since its connection was lost, in milliseconds; null unless it is silent.
    pub(crate) silent_ms: Option<u64>,
    /// Error of the last attempt to connect, or the reason why the log of a node that is heard has
    /// stopped; null without either.
    pub(crate) fault: Option<String>,
    /// Entries of the log that it has still to carry out; null if unknown.
    pub(crate) lag_entries: Option<u64>,
    /// Version of its software; null if unknown.
    pub(crate) version: Option<String>,
    /// Round-trip time in milliseconds; null if unknown, or for this node.
    pub(crate) rtt_ms: Option<f64>,
    /// Time by which its clock is ahead of this node's, in milliseconds; null if unknown.
    pub(crate) clock_ahead_ms: Option<i64>,
    /// Most urgent problems that the node reports of itself; of this node, see `problems` beside
    /// `nodes`.
    pub(crate) problems: Vec<NodeProblem>,
}

/// All regions.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct WorldAnswer {
    /// Every region, the node's own first.
    pub(crate) regions: Vec<RegionOverview>,
}

/// Answers with the facts and the state of this node.
pub(crate) async fn node(
    by: Option<&dyn Overview>,
    control_plane: Option<&ControlPlane>,
) -> Result<Reply, ApiError> {
    let by = by.ok_or_else(|| ApiError::internal("this process has no data about its node"))?;
    Ok(json(StatusCode::OK, &node_answer(by, control_plane).await))
}

/// Judgement of a node's health.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HealthReport {
    /// State in one word.
    pub health: Health,
    /// State in a sentence.
    pub summary: String,
    /// Problems, the most urgent first.
    pub problems: Vec<Problem>,
}

/// Judges a node, and returns its certificate that ends first, too.
pub async fn health_report(
    by: &dyn Overview,
    control_plane: Option<&ControlPlane>,
) -> (HealthReport, Option<CertificateEnd>) {
    let NodeAnswer { health, summary, problems, node, .. } = node_answer(by, control_plane).await;
    (HealthReport { health, summary, problems }, node.first_certificate)
}

/// Looks at this node and its cluster, and judges them.
async fn node_answer(by: &dyn Overview, control_plane: Option<&ControlPlane>) -> NodeAnswer {
    judged(by.node().await, control_plane, &by.regions(), &by.replicas().await)
}

/// Judges a node by its knowledge of itself, its cluster, regions and replicas.
pub(crate) fn judged(
    node: NodeOverview,
    control_plane: Option<&ControlPlane>,
    regions: &[RegionOverview],
    replicas: &[ReplicaOverview],
) -> NodeAnswer {
    let log = control_plane.map(status_answer);
    let nodes = rows(&node, log.as_ref());
    let now = SystemTime::now();
    let sight = Sight { node: &node, nodes: &nodes, log: log.as_ref(), regions, replicas, now };
    let problems = problems(sight);
    let (health, summary) = verdict::judge(sight, &problems);
    NodeAnswer { health, summary, problems, node, nodes, log }
}

/// Answers with this node's knowledge of all regions.
pub(crate) fn world(by: Option<&dyn Overview>) -> Result<Reply, ApiError> {
    let by = by.ok_or_else(|| ApiError::internal("this process has no data about regions"))?;
    Ok(json(StatusCode::OK, &WorldAnswer { regions: by.regions() }))
}

/// Answers the figures of requests over the last ten minutes.
pub(crate) async fn history(
    by: Option<&dyn Overview>,
    all: Option<&dyn AllNodes>,
    call: &AdminCall,
) -> Result<Reply, ApiError> {
    let unknown = || ApiError::internal("this process has no data about requests");
    let named = call.query.fields.iter().find(|(field, _)| *field == FilterField::Region);
    let region = named.map(|(_, region)| region.clone());
    let scope = match call.query.scope {
        Scope::Region => HistoryScope::Region(region),
        _ if region.is_some() => {
            let cause = "a region is named, and the scope is another";
            return Err(ApiError::bad_request(cause, "use scope=region, or leave out `region`"));
        }
        Scope::Node => return Ok(json(StatusCode::OK, &by.ok_or_else(unknown)?.history())),
        Scope::Cluster => HistoryScope::Cluster,
    };
    Ok(json(StatusCode::OK, &all.ok_or_else(unknown)?.history(scope).await))
}

/// Answers the replicas of every region.
pub(crate) async fn fleet(all: Option<&dyn AllNodes>) -> Result<Reply, ApiError> {
    let all = all.ok_or_else(|| ApiError::internal("this process has no data about replicas"))?;
    Ok(json(StatusCode::OK, &all.replicas().await))
}

/// Routes that a node uses.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct RoutesAnswer {
    /// Routes, in the order in which requests meet them.
    pub(crate) routes: Vec<RouteOverview>,
}

/// Answers the routes that this node uses.
pub(crate) fn routes(by: Option<&dyn Overview>) -> Result<Reply, ApiError> {
    let by = by.ok_or_else(|| ApiError::internal("this process has no data about routes"))?;
    Ok(json(StatusCode::OK, &RoutesAnswer { routes: by.routes() }))
}

/// Returns a row for each node that is a member of the log or linked to this one, this one first.
pub(super) fn rows(node: &NodeOverview, log: Option<&StatusAnswer>) -> Vec<NodeRow> {
    let members: &[MemberInfo] = log.map(|log| log.members.as_slice()).unwrap_or_default();
    let member = |name: &str| members.iter().find(|member| member.name == name);
    let role = |name: &str| role_of(member(name), log);
    let applied = |log: &StatusAnswer| log.applied_index;
    // An index that any node has applied was committed.
    let peers = node.peers.iter().map(|peer| peer.applied_index);
    let newest = log.and_then(|log| log.committed_index.max(applied(log)));
    let newest = peers.chain([newest]).flatten().max();
    let lag = |applied: Option<u64>| Some(newest?.saturating_sub(applied?));
    let own = NodeRow {
        name: node.name.clone(),
        region: node.region.clone(),
        role: role(&node.name),
        state: "this node".to_owned(),
        lag_entries: lag(log.and_then(applied)),
        version: Some(node.version.clone()),
        clock_ahead_ms: Some(0),
        ..NodeRow::default()
    };
    let peers = node.peers.iter().map(|peer| NodeRow {
        name: peer.name.clone(),
        region: peer.region.clone(),
        role: role(&peer.name),
        state: match (peer.is_heard, peer.silent_ms) {
            (true, _) => "up",
            (false, Some(_)) => "silent",
            (false, None) => "never heard",
        }
        .to_owned(),
        silent_ms: peer.silent_ms,
        fault: peer.fault.clone(),
        // The leader knows the log of a silent node.
        lag_entries: lag(peer
            .applied_index
            .or_else(|| member(&peer.name).and_then(|it| it.matched_index))),
        version: peer.version.clone(),
        rtt_ms: peer.rtt_ms,
        clock_ahead_ms: peer.clock_ahead_ms,
        problems: peer.problems.clone(),
    });
    let is_known = |name: &str| name == node.name || node.peers.iter().any(|it| it.name == name);
    let others = members.iter().filter(|it| !it.name.is_empty() && !is_known(&it.name));
    let others = others.map(|member| NodeRow {
        name: member.name.clone(),
        region: member.region.clone(),
        role: role(&member.name),
        state: "never heard".to_owned(),
        lag_entries: lag(member.matched_index),
        ..NodeRow::default()
    });
    std::iter::once(own).chain(peers).chain(others).collect()
}

fn role_of(member: Option<&MemberInfo>, log: Option<&StatusAnswer>) -> String {
    let leader = log.and_then(|log| log.leader.as_ref());
    let role = match member {
        Some(member) if leader.is_some_and(|it| it.node == member.name) => "leader",
        Some(member) if member.is_voter => "voter",
        Some(_) => "learner",
        None => "no log",
    };
    role.to_owned()
}
