//! Checked config of a node, and its parts.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use spillway_admin::AdminConfig;
use spillway_front::client::{ListenerSpec, TlsIdentity};
use spillway_geo::dns::DnsConfig;
use spillway_prefix::KnowledgeConfig;
use spillway_request::cors::Cors;
use spillway_request::gateway::GatewayConfig;
use spillway_resolver::SystemFiles;
use spillway_traces::TracesConfig;
use spillway_types::ReplicaName;
use spillway_upstream::Timeouts;
use spillway_view::{NameSpec, QueueSpec, RouteSpec};

use crate::access_log_section::AccessLogConfig;
use crate::access_section::{AccessConfig, ListenerAccess};
use crate::at_start::AtStart;
use crate::care_section::CareDefaults;
use crate::cluster_section::ClusterConfig;
use crate::discovery_section::DiscoveryConfig;
use crate::error::ConfigErrors;
use crate::geo_section::GeoConfig;
use crate::overflow_terms::OverflowTerms;
use crate::replica::ReplicaConfig;
use crate::route_record::RoutesSaid;
use crate::source::ReadFiles;
use crate::spill_section::SpillConfig;
use crate::start_positions::StartPositions;
use crate::usage_section::UsageConfig;

/// Address and access rules of the admin listener.
#[derive(Clone, Debug)]
pub struct AdminListener {
    /// IP address and port.
    pub address: SocketAddr,
    /// Settings of the admin API behind it.
    pub api: AdminConfig,
    /// Certificate and key; `None` for cleartext.
    pub tls: Option<TlsIdentity>,
}

/// A checked config.
#[derive(Debug)]
pub struct Config {
    /// Name of this node.
    pub node: String,
    /// Number of threads that serve requests.
    pub workers: usize,
    /// Addresses for clients.
    pub listeners: Vec<ListenerConfig>,
    /// Listener of metrics, health and the admin API; `None` if there is none.
    pub admin: Option<AdminListener>,
    /// Settings of the data path.
    pub gateway: GatewayConfig,
    /// Settings as a member of a cluster; `None` for a node without one.
    pub cluster: Option<ClusterConfig>,
    /// Settings of the name server; `None` if this node is none.
    pub dns: Option<DnsConfig>,
    /// Conditions for sending requests to other regions.
    pub spill: SpillConfig,
    /// Conditions for directing new clients to other regions; no settings, but a test may have
    /// others.
    pub steering: spillway_health::SteeringConfig,
    /// Settings of the prefix index and of the knowledge about replicas.
    pub knowledge: KnowledgeConfig,
    /// Log of requests; it can change while the node runs.
    pub access_log: AccessLogConfig,
    /// Traces; `None` if none are sent.
    pub traces: Option<Box<TracesConfig>>,
    /// Location databases, not read yet, and rules that use them; they can change while the node
    /// runs.
    pub geo: GeoConfig,
    /// Keys and tenants; they can change while the node runs.
    pub access: AccessConfig,
    /// Limits that this node enforces by itself; they can change while the node runs.
    pub limits: Vec<spillway_rate_limit::LimitTerms>,
    /// Folder and length of the stored usage.
    pub usage: UsageConfig,
    /// Prices of tokens; they can change while the node runs.
    pub prices: spillway_usage::PriceList,
    /// Settings that can change while the node runs.
    pub world: WorldConfig,
    /// Time for which the node serves on after it was asked to stop, while it reports that it is
    /// not ready. `None` measures it by the polls that arrive.
    pub drain_notice: Option<std::time::Duration>,
    /// Version of the program, for operators. The program adds its build.
    pub version: String,
    /// Time limit for requests to finish when the node stops.
    pub drain: std::time::Duration,
    /// Files in which the system names hosts and name servers; a test may have others.
    pub system_files: SystemFiles,
    /// Path of the file, which is watched; `None` if the config did not come from a file.
    pub path: Option<PathBuf>,
    /// Settings that take effect only when a node starts.
    pub at_start: AtStart,
    /// Text of the file.
    pub text: String,
    /// Files that the config names: tokens, certificates, keys and credentials.
    pub files: ReadFiles,
    /// Positions of settings that only the start of a node can check.
    pub places: StartPositions,
    /// Warnings: valid settings that most likely differ from the intended ones.
    pub warnings: ConfigErrors,
}

/// A listening address.
#[derive(Debug)]
pub struct ListenerConfig {
    /// Address to listen on; port 0 takes a free one.
    pub address: SocketAddr,
    /// True if other processes with this setting may listen on the address, too.
    pub shares_port: bool,
    /// TLS, trusted proxies and authentication of its connections.
    pub spec: ListenerSpec,
    /// Authentication mode; can change while the node runs.
    pub access: ListenerAccess,
}

impl WorldConfig {
    /// Returns prices and budgets of all overflow replicas.
    #[must_use]
    pub fn overflow(&self) -> BTreeMap<ReplicaName, OverflowTerms> {
        let terms = |replica: &ReplicaConfig| Some((replica.spec.name.clone(), replica.overflow?));
        self.replicas.iter().filter_map(terms).collect()
    }
}

/// Replicas, routes and names: the part of the config that a reload replaces.
#[derive(Debug)]
pub struct WorldConfig {
    /// Every replica.
    pub replicas: Vec<ReplicaConfig>,
    /// Sources of more replicas.
    pub discoveries: Vec<DiscoveryConfig>,
    /// Every route. Where none names models and none is for all, the last one, `default`, serves
    /// everything that is built in.
    pub routes: Vec<RouteSpec>,
    /// The routes as in the file, for records of the cluster that add to them.
    pub said: RoutesSaid,
    /// True if that route is in no file.
    pub implies_default: bool,
    /// Names that clients may ask for beyond the models that replicas serve.
    pub names: Arc<NameSpec>,
    /// Defaults for replicas that come without a config.
    pub defaults: CareDefaults,
    /// Web pages that may use the API.
    pub cors: Cors,
    /// Time limits of replicas, for routes that set none.
    pub timeouts: Timeouts,
    /// Queue of waiting requests, for routes that set none.
    pub queue: QueueSpec,
    /// Certificates of the TLS listeners, in the order of the listeners.
    pub identities: Vec<Option<TlsIdentity>>,
}
