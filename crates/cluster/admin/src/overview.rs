//! Interface to the node's knowledge of itself, of other nodes and of regions.

use std::fmt::Debug;
use std::future::Future;
use std::pin::Pin;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use spillway_usage::UsageQuery;

use crate::usage::{AskedNode, ClusterUsage};

/// Knowledge of the node about itself, other nodes and regions. Needs no cluster.
pub trait Overview: Debug + Send + Sync {
    /// Returns the node and the nodes that it is linked to. Asks those for their version, and waits
    /// for a second at most.
    fn node(&self) -> Looking<'_>;

    /// Returns every region, the node's own first.
    fn regions(&self) -> Vec<RegionOverview>;

    /// Returns figures of this node's requests over the last ten minutes.
    fn history(&self) -> RequestHistoryOverview;

    /// Returns the routes that this node uses, in the order in which requests meet them.
    fn routes(&self) -> Vec<RouteOverview>;

    /// Returns the replicas of this node.
    fn replicas(&self) -> Listing<'_>;

    /// Returns what clients used. Asks the nodes that this one is linked to, and waits for some
    /// seconds at most.
    fn usage(&self, query: UsageQuery) -> Summing<'_>;
}

/// An overview that is being made.
pub type Looking<'a> = Pin<Box<dyn Future<Output = NodeOverview> + Send + 'a>>;
/// A list of replicas that is being made.
pub type Listing<'a> = Pin<Box<dyn Future<Output = Vec<ReplicaOverview>> + Send + 'a>>;

/// Sums of usage that are being made.
pub type Summing<'a> = Pin<Box<dyn Future<Output = ClusterUsage> + Send + 'a>>;

/// The answering node.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct NodeOverview {
    /// Name of the node.
    pub name: String,
    /// Region of the node.
    pub region: String,
    /// Version of its software.
    pub version: String,
    /// Start of the node, in milliseconds since 1970.
    pub started_ms: u64,
    /// Time since then, in seconds.
    pub uptime_s: u64,
    /// Path of its config file; null if its config came from elsewhere.
    pub config_file: Option<String>,
    /// Addresses that clients connect to.
    pub listeners: Vec<ListenerOverview>,
    /// Phase of its life.
    pub phase: NodePhase,
    /// Replicas of the node.
    pub replicas: ReplicaTally,
    /// Discoveries of the node.
    pub discoveries: Vec<DiscoveryOverview>,
    /// True if other nodes are linked to it or may be.
    pub is_in_cluster: bool,
    /// Other nodes that it is linked to, or tries to be.
    pub peers: Vec<PeerOverview>,
    /// Names of regions that are not heard.
    pub silent_regions: Vec<String>,
    /// True if a replica of another region can serve its requests.
    pub is_served_elsewhere: bool,
    /// Room in its data folder; null if it has none, or if the file system does not tell.
    pub data: Option<DataRoom>,
    /// Certificate of its own that ends first; null if it has none.
    pub first_certificate: Option<CertificateEnd>,
    /// What is wrong with its requests.
    pub request_troubles: Vec<RequestTroubleOverview>,
    /// Client with most of the requests of the last half minute; null without requests.
    pub busiest_client: Option<BusiestClient>,
    /// Clients that their own limits refuse at least once a second.
    pub limited_clients: Vec<LimitedClientOverview>,
    /// Config file that was refused, and with which the next start would fail; null if the one in use
    /// is the newest.
    pub refused_config: Option<RefusedConfig>,
    /// Error with which the newest usage could not be written; null if it was.
    pub usage_fault: Option<String>,
}

/// Requests that fail, or that the node refuses for lack of room.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RequestTroubleOverview {
    /// `failing`: after they were admitted; or `refused`.
    pub trouble: String,
    /// Part of the node's requests, in percent.
    pub percent: f64,
    /// That part in the last hour, or in what there is of it; null if nothing was counted before.
    pub usual_percent: Option<f64>,
    /// Causes, the most frequent first.
    pub causes: Vec<TroubleCause>,
}

/// Cause for which requests fail or are refused.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TroubleCause {
    /// Cause in words, such as `500 from gpu-a`; of refused requests, the reason as in metrics.
    pub cause: String,
    /// Part of the requests that failed or were refused, in percent.
    pub percent: f64,
}

/// Figures of requests over the last ten minutes.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RequestHistoryOverview {
    /// Length of a point in time, in milliseconds.
    pub bin_ms: u64,
    /// Points, the oldest first; fewer after a start.
    pub points: Vec<HistoryPointOverview>,
    /// Nodes whose requests these are, the answering one first. Requests of a node with a fault are
    /// missing.
    pub nodes: Vec<AskedNode>,
}

/// Figures of the requests that ended in some seconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct HistoryPointOverview {
    /// Requests per second.
    pub requests_per_s: f64,
    /// Those of them that failed after they were admitted.
    pub failed_per_s: f64,
    /// Those of them that the node refused.
    pub refused_per_s: f64,
    /// Those of them that another region served.
    pub forwarded_per_s: f64,
    /// Those of them that another region forwarded here.
    pub received_per_s: f64,
    /// Generated tokens per second.
    pub tokens_per_s: f64,
    /// Median time to first token of streams that went well, in milliseconds; null without any.
    pub first_token_p50_ms: Option<f64>,
    /// 95th percentile of that time.
    pub first_token_p95_ms: Option<f64>,
}

/// A route that the node uses: of its config file or of the cluster.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RouteOverview {
    /// Name of the route.
    pub name: String,
    /// Beginning of the paths that it takes; null for the endpoints of models.
    pub path_prefix: Option<String>,
    /// Models that it serves; empty for all.
    pub models: Vec<String>,
    /// Pool of its replicas; null for all replicas.
    pub pool: Option<String>,
    /// Policy that chooses a replica.
    pub policy: String,
    /// True if streams go on at another replica when theirs fails.
    pub continues_streams: bool,
    /// True if slow requests are sent to a second replica, too.
    pub hedges: bool,
    /// True if clients keep a replica for a session.
    pub keeps_sessions: bool,
    /// Longest useful time to the first byte of a reply, in milliseconds; null without such a limit.
    pub slo_ms: Option<u64>,
    /// Longest wait for a slot, in milliseconds.
    pub wait_ms: u64,
    /// True if requests may go to overflow replicas.
    pub overflows: bool,
}

/// Client with most of the requests.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct BusiestClient {
    /// The client: `key NAME`, `tenant NAME` or `clients without a key`.
    pub client: String,
    /// Part of the node's requests, in percent.
    pub percent: f64,
}

/// A client that a limit of its own refuses.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct LimitedClientOverview {
    /// The client, as in [`BusiestClient`].
    pub client: String,
    /// Its tenant; null if it has none.
    pub tenant: Option<String>,
    /// Reason of the refusals, as in metrics.
    pub reason: String,
    /// Refusals per second.
    pub refused_per_s: f64,
}

/// A config file that was refused when it was to be reloaded.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RefusedConfig {
    /// Moment of the refusal, in milliseconds since 1970.
    pub at_ms: u64,
    /// First error, with its line and what to do.
    pub error: String,
}

/// State of a discovery.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct DiscoveryOverview {
    /// Name of the discovery.
    pub name: String,
    /// Source: `dns`, `srv` or `file`, with what is asked for.
    pub source: String,
    /// State: `pending`, `answered`, `empty`, `stale` (tries fail, and the replicas found earlier are
    /// in use) or `unanswered` (no try was ever answered).
    pub state: String,
    /// Number of its replicas in use.
    pub replicas: u32,
    /// Age of its last answer that could be used, in milliseconds; null if there was none.
    pub answered_ms: Option<u64>,
    /// Failure of the last try; null if it was answered.
    pub failure: Option<String>,
}

impl DiscoveryOverview {
    /// Returns true if replicas may be missing because the source gave no answer that can be used.
    #[must_use]
    pub fn is_fault(&self) -> bool {
        matches!(self.state.as_str(), "pending" | "unanswered" | "stale")
    }
}

/// Room on the file system of a data folder.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct DataRoom {
    /// Path of the folder.
    pub folder: String,
    /// Bytes that can still be written.
    pub free_bytes: u64,
    /// Size of the file system in bytes.
    pub total_bytes: u64,
}

/// Validity of a certificate.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct CertificateEnd {
    /// Use of the certificate: `links`, or `listener` and its name.
    pub of: String,
    /// Begin of its validity, in milliseconds since 1970.
    pub begins_ms: i64,
    /// End, in milliseconds since 1970.
    pub ends_ms: i64,
}

/// Phase of a node's life.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum NodePhase {
    /// It serves clients.
    #[default]
    Serving,
    /// It waits for its shares of the cluster's limits.
    AwaitingLimits,
    /// It was told to stop, and lets requests finish.
    Leaving,
}

/// An address that clients connect to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ListenerOverview {
    /// IP address and port.
    pub address: String,
    /// Authentication of clients: `keys`, `headers` or `none`.
    pub auth: String,
    /// True if it speaks TLS.
    pub is_tls: bool,
}

/// Replicas of a node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ReplicaTally {
    /// Number of replicas.
    pub known: u32,
    /// Number of those that take requests with their full share, or would.
    pub up: u32,
    /// Number of those that begin with a growing share, after their start.
    #[serde(default)]
    pub ramping: u32,
    /// Number of those that get a few requests, to see if they work again. They are among `lacking`,
    /// too.
    #[serde(default)]
    pub on_trial: u32,
    /// Number of those that were ejected a moment ago, for the first time in ten minutes. They are not
    /// among `lacking`.
    #[serde(default)]
    pub ejected: u32,
    /// Number of those that an operator drains.
    pub draining: u32,
    /// The others: neither up nor drained.
    pub lacking: Vec<LackingReplica>,
}

impl ReplicaTally {
    /// Returns true if no replica takes requests.
    #[must_use]
    pub fn takes_none(&self) -> bool {
        self.up == 0 && self.ramping == 0 && self.on_trial == 0
    }
}

/// A replica that takes no requests without an order, or too few.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct LackingReplica {
    /// Name of the replica.
    pub name: String,
    /// State, as in `/replicas`.
    pub state: String,
    /// Reason of that state in words.
    pub reason: Option<String>,
}

/// Another node, as the answering one knows it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PeerOverview {
    /// Name of the node.
    pub name: String,
    /// Region of the node.
    pub region: String,
    /// Address at which it is dialled.
    pub address: String,
    /// True if there is a connection.
    pub is_heard: bool,
    /// Time since the connection was lost, in milliseconds; null if there is one, or never was.
    pub silent_ms: Option<u64>,
    /// Error of the last attempt to connect, or the reason why the log of a connected node has
    /// stopped; null without either.
    pub fault: Option<String>,
    /// Round-trip time in milliseconds.
    pub rtt_ms: Option<f64>,
    /// Version of its software; null if it did not say so in time.
    pub version: Option<String>,
    /// Index of the last entry of the log that it carried out; null if it did not say so.
    pub applied_index: Option<u64>,
    /// Time by which its clock is ahead of the answering node's, in milliseconds; null if it did not
    /// say so.
    #[serde(default)]
    pub clock_ahead_ms: Option<i64>,
    /// Most urgent problems that it reports of itself.
    #[serde(default)]
    pub problems: Vec<NodeProblem>,
}

/// Problem that a node reports of itself to other nodes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct NodeProblem {
    /// True if somebody should look at once.
    pub is_urgent: bool,
    /// Problem in one line.
    pub title: String,
}

/// A region, as the answering node knows it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RegionOverview {
    /// Name of the region.
    pub region: String,
    /// True for the answering node's own.
    pub is_own: bool,
    /// Place of the region; null if neither the config nor the name of a cloud's region tells it.
    pub place: Option<RegionLocation>,
    /// True if the region is heard.
    pub is_heard: bool,
    /// True if requests can be sent there.
    pub is_reachable: bool,
    /// Time since it was heard, in milliseconds; null for the own region, or if it never was.
    pub heard_ms: Option<u64>,
    /// Round-trip time in milliseconds; 0 for the own region.
    pub rtt_ms: f64,
    /// Replicas that take requests; null if no model's number is known. Of a region with several
    /// models it is that of the model with most.
    pub replicas_up: Option<u32>,
    /// Requests at replicas.
    pub in_flight: f64,
    /// Requests that the replicas take at once; null if unknown. A replica of another region counts
    /// once for each of its models.
    pub places: Option<f64>,
    /// Requests that wait for a place.
    pub waiting: f64,
    /// Models that can be served there.
    pub models: Vec<String>,
    /// Requests of this node there now; of the own region, requests from other regions here.
    pub spilling: u64,
    /// Requests that this node ever sent there; null for the own region.
    pub sent: Option<u64>,
    /// Those that were refused.
    pub refused: Option<u64>,
    /// Those that broke off.
    pub broken: Option<u64>,
    /// True if the region's circuit breaker is open: its replies fail.
    pub is_broken: bool,
    /// Share of spilled requests that it takes, in percent of the usual.
    pub weight_percent: f64,
    /// Extra cost of serving there, in milliseconds.
    pub price_ms: f64,
}

/// Location of a region on Earth.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RegionLocation {
    /// Degrees north of the equator.
    pub latitude: f64,
    /// Degrees east of Greenwich.
    pub longitude: f64,
}

/// A replica of the answering node.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct ReplicaOverview {
    /// Name of the replica.
    pub name: String,
    /// URL of the replica.
    pub url: String,
    /// Models of the replica.
    pub models: Vec<String>,
    /// Models that it should serve, and says it does not have.
    pub models_missing: Vec<String>,
    /// State in one word, as in `/replicas`.
    pub state: String,
    /// Reason of that state in words; null for a replica that serves as usual.
    pub reason: Option<String>,
    /// Ejections in the last ten minutes.
    pub ejections: u32,
    /// True if it works for a while and fails again.
    pub flaps: bool,
    /// True if the first of these ejections was a moment ago.
    #[serde(default)]
    pub is_ejected_briefly: bool,
    /// Server software; null while unknown.
    pub kind: Option<String>,
    /// Requests of this node at the replica.
    pub in_flight: u32,
    /// Requests that it takes at once from all nodes of the region; null if nothing bounds it.
    pub places: Option<u32>,
    /// Requests that wait at the replica, by its report.
    pub queued: Option<f32>,
    /// Share of its KV cache in use, 0 to 1; null if it does not tell.
    pub kv_use: Option<f32>,
    /// Share of prompt tokens that recent replies had from its cache, 0 to 1.
    pub cached_share: Option<f32>,
    /// Average time to first token of streams that went well, in milliseconds.
    pub latency_ms: Option<f32>,
    /// 99th percentile of that time, in milliseconds.
    pub p99_ms: Option<f32>,
    /// Median of that average of others that serve one of its models, if this replica is much slower;
    /// null if it is not.
    pub slower_than_ms: Option<f32>,
    /// Age of its newest load report, in milliseconds.
    pub report_age_ms: Option<u64>,
}
