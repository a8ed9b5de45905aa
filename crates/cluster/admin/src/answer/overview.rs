//! Overview of the answering node, its cluster and all regions.

use std::time::SystemTime;

use http::StatusCode;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use spillway_control_plane::ControlPlane;

use super::node_row::{NodeRow, rows};
use super::problem::Problem;
use super::problems::{Sight, problems};
use super::status::{StatusAnswer, status_answer};
use super::verdict::{self, Health};
use crate::all_nodes::{AllNodes, HistoryScope};
use crate::call::AdminCall;
use crate::error::ApiError;
use crate::overview::{
    CertificateEnd, NodeOverview, Overview, RegionOverview, ReplicaOverview, RouteOverview,
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
