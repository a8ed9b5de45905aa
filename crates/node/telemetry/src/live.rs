//! Values that metrics show as they are at the moment of a scrape.

use spillway_types::{Admission, Steering};

use crate::certificate_metrics::LiveCertificates;
use crate::discovery_metrics::LiveDiscovery;
use crate::dns_metrics::LiveDns;
use crate::geo_metrics::LiveGeo;
use crate::knowledge_metrics::{LiveHot, LiveKnowledge};
use crate::limit_metrics::LiveLimit;
use crate::overflow_metrics::LiveOverflow;
use crate::region_metrics::LiveCluster;
use crate::replica_metrics::LiveReplica;
use crate::usage::LiveBudget;

/// Values at the moment of a scrape.
#[derive(Clone, Debug, Default)]
pub struct Live {
    /// Replicas of the current view.
    pub replicas: Vec<LiveReplica>,
    /// Client connections open now.
    pub client_connections: u64,
    /// Bytes of request bodies held in memory.
    pub body_bytes: u64,
    /// Bytes of replies held for clients that read slowly.
    pub ahead_bytes: u64,
    /// Replies since start that were read ahead of their clients, by state.
    pub ahead_replies: [(&'static str, u64); 2],
    /// Client streams since start that the gateway closed, by reason.
    pub streams_closed: [(&'static str, u64); 1],
    /// Memory of the process in bytes, by kind.
    pub memory: Vec<(&'static str, u64)>,
    /// Client connections since start that the gateway closed, by reason.
    pub connections_closed: Vec<(&'static str, u64)>,
    /// Requests for entry since start, by tenant and result.
    pub access: Vec<(String, &'static str, u64)>,
    /// Outcomes since start that did not fit into the queue.
    pub outcomes_dropped: u64,
    /// Lines since start that logs lost, by log.
    pub lines_lost: [(&'static str, u64); 2],
    /// Spans since start, by result.
    pub spans: [(&'static str, u64); 2],
    /// Retries since start that the retry budget refused.
    pub retries_refused: u64,
    /// Requests since start that were given up after two engines had died with them.
    pub engines_died: u64,
    /// Requests since start that were refused for residency, by the place that refused them.
    pub residency: Vec<(&'static str, u64)>,
    /// Replies of `/v1/responses` since start whose ids were not kept, by reason.
    pub responses_not_kept: Vec<(&'static str, u64)>,
    /// News of homes that other nodes did not get since start, by the queue that dropped them.
    pub home_news_dropped: Vec<(&'static str, u64)>,
    /// Sessions and conversations since start that moved elsewhere, by kind and destination.
    pub home_changes: Vec<(&'static str, &'static str, u64)>,
    /// Streams since start whose replica broke off, by result and reason.
    pub continuations: Vec<(&'static str, &'static str, u64)>,
    /// Routes and models without an open replica.
    pub last_resorts: Vec<LastResort>,
    /// Requests waiting on this node, by model.
    pub waiting: Vec<(String, u32)>,
    /// Requests of other nodes that are being served here.
    pub guests: u32,
    /// Advice about sending clients to this node.
    pub steering: Steering,
    /// Other regions and nodes.
    pub cluster: LiveCluster,
    /// Name server; `None` if this node is not one.
    pub dns: Option<LiveDns>,
    /// Discoveries of replicas.
    pub discoveries: Vec<LiveDiscovery>,
    /// Facts about replicas since start that did not fit into their queue.
    pub facts_dropped: u64,
    /// Knowledge of caches and speeds.
    pub knowledge: LiveKnowledge,
    /// Hot prompts of the cluster; `None` if this node takes no part in them.
    pub hot: Option<LiveHot>,
    /// Locations of clients.
    pub geo: LiveGeo,
    /// State of limits on this node.
    pub limits: Vec<LiveLimit>,
    /// Budgets of tenants.
    pub budgets: Vec<LiveBudget>,
    /// Caps of overflow replicas.
    pub overflow: Vec<LiveOverflow>,
    /// Expiry of certificates.
    pub certificates: LiveCertificates,
    /// Last judgement of the node's health.
    pub health: LiveHealth,
}

/// Judgement of a node's health.
#[derive(Clone, Debug, Default)]
pub struct LiveHealth {
    /// State: `healthy`, `degraded` or `unhealthy`.
    pub state: &'static str,
    /// Number of problems by kind, of all kinds.
    pub problems: Vec<(&'static str, u64)>,
}

/// A route and model without an open replica.
#[derive(Clone, Debug)]
pub struct LastResort {
    /// Name of the route.
    pub route: String,
    /// Name of the model; empty for requests without one.
    pub model: String,
    /// Standing of the replicas that serve instead.
    pub admission: Admission,
}
