//! Interface to the knowledge of all nodes together: this node asks the others.

use std::fmt::Debug;
use std::future::Future;
use std::pin::Pin;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use spillway_rollout::ArmFigures;
use spillway_types::{ModelName, RequestEntry};

use crate::overview::{ReplicaOverview, RequestHistoryOverview};
use crate::requests::RequestFilter;
use crate::usage::AskedNode;

/// Questions that this node answers together with the nodes that it is linked to. Each waits for
/// two seconds at most, and its answer names the nodes that gave none.
pub trait AllNodes: Debug + Send + Sync {
    /// Returns figures of requests over the last ten minutes.
    fn history(&self, scope: HistoryScope) -> Asking<'_, RequestHistoryOverview>;

    /// Returns the replicas of every region.
    fn replicas(&self) -> Asking<'_, AllReplicas>;

    /// Returns the requests that ended last and pass the filter, newest first, at most `limit`. The
    /// filter's `after` is not looked at: numbers are those of one node.
    fn requests(&self, filter: RequestFilter, limit: usize) -> Asking<'_, RequestsOfNodes>;

    /// Returns the figures of both arms of a split's rollout in this epoch.
    fn arms(&self, split: ModelName, epoch: u32) -> Asking<'_, ArmsOfNodes>;
}

/// Figures of both arms of a rollout, of all nodes together.
#[derive(Clone, Debug, Default)]
pub struct ArmsOfNodes {
    /// Nodes that were asked.
    pub nodes: Vec<AskedNode>,
    /// Figures of the baseline.
    pub baseline: ArmFigures,
    /// Figures of the candidate.
    pub candidate: ArmFigures,
}

/// An answer of several nodes that is being made.
pub type Asking<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// Nodes whose requests a history has.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum HistoryScope {
    /// The answering node.
    #[default]
    Node,
    /// The nodes of a region; `None` for that of the answering node. Has requests that other regions
    /// forwarded there, too.
    Region(Option<String>),
    /// All nodes. Each request counts once, at the node that its client asked.
    Cluster,
}

/// Replicas of every region.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct AllReplicas {
    /// Nodes that were asked, the answering one first.
    pub nodes: Vec<AskedNode>,
    /// Replicas by region and name.
    pub replicas: Vec<RegionReplica>,
}

/// A replica of a region.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RegionReplica {
    /// Region of the replica.
    pub region: String,
    /// Figures of the replica. Its requests in flight are those of all nodes that answered.
    #[serde(flatten)]
    pub replica: ReplicaOverview,
}

/// Requests of several nodes.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RequestsOfNodes {
    /// Nodes that were asked, the answering one first.
    pub nodes: Vec<AskedNode>,
    /// Requests, newest first.
    pub requests: Vec<RequestEntry>,
}
