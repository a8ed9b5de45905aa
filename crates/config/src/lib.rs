//! The config file: read, checked and turned into the settings of each part.
//!
//! Reading happens once, here. A [`Config`] can't be wrong later: every fault is found with its
//! line and a remedy before any port is opened.

mod access_section;
mod at_start;
mod care_section;
mod cluster_section;
mod discovery_section;
mod dns_section;
mod environment;
mod error;
mod file;
#[cfg(any(test, fuzzing))]
pub mod fuzz;
mod geo_section;
mod health_section;
mod hedge_section;
mod kind_settings;
mod limit_section;
mod lower;
mod names;
mod policy_sections;
mod prefix_section;
mod reference;
mod region_section;
mod replica;
mod replica_section;
mod route_section;
mod section;
mod session_section;
mod spill_section;
mod split_section;
mod steering_section;
mod versions;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use spillway_admin::AdminConfig;
use spillway_proxy::{
    Cors, GatewayConfig, ListenerSpec, NameSpec, QueueSpec, RouteSpec, Timeouts, TlsIdentity,
};

pub use access_section::{AccessConfig, ListenerAccess};
pub use at_start::AtStart;
pub use care_section::CareDefaults;
pub use cluster_section::{ClusterConfig, PeerConfig};
pub use discovery_section::{DiscoveryConfig, Found, read_replicas};
pub use replica::{Care, Concurrency, ReplicaConfig};

pub use dns_section::DnsConfig;
pub use error::ConfigError;
pub use geo_section::GeoConfig;

pub use prefix_section::KnowledgeConfig;
pub use reference::reference;
pub use region_section::RegionConfig;
pub use route_section::default_policy;
pub use section::WorkerLayout;
pub use spill_section::SpillConfig;

/// Address and access rules of the admin listener.
#[derive(Clone, Debug)]
pub struct AdminListener {
    /// IP address and port.
    pub address: SocketAddr,
    /// Settings of the admin API behind it.
    pub api: AdminConfig,
    /// Certificate and key; `None` for cleartext.
    pub tls: Option<TlsIdentity>,
    /// Files that tokens and certificate were read from.
    pub files: Vec<PathBuf>,
}

/// A checked config.
#[derive(Debug)]
pub struct Config {
    /// Name of this node.
    pub node: String,
    /// Number of threads that serve requests.
    pub workers: usize,
    /// Way in which these threads share the work.
    pub worker_layout: WorkerLayout,
    /// Addresses that clients connect to.
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
    /// Conditions for sending new clients elsewhere.
    pub steering: spillway_health::SteeringConfig,
    /// Settings of the prefix index and of what is learned of replicas.
    pub knowledge: KnowledgeConfig,
    /// Location databases, not read yet, and rules that go by them; they can change while the node
    /// runs.
    pub geo: GeoConfig,
    /// Keys and tenants; they can change while the node runs.
    pub access: AccessConfig,
    /// Limits that this node enforces by itself; they can change while the node runs.
    pub limits: Vec<spillway_quota::LimitTerms>,
    /// Settings that can change while the node runs.
    pub world: WorldConfig,
    /// Time for which the node serves on after it was told to stop, while it reports that it is not
    /// ready.
    pub drain_notice: std::time::Duration,
    /// Time limit for requests to finish when the node stops.
    pub drain: std::time::Duration,
    /// Path of the file, which is watched; `None` if the config did not come from a file.
    pub path: Option<PathBuf>,
    /// Settings that take effect only when a node starts.
    pub at_start: AtStart,
    /// Text of the file.
    pub text: String,
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

/// Replicas, routes and names: the part of the config that a reload replaces.
#[derive(Debug)]
pub struct WorldConfig {
    /// Every replica.
    pub replicas: Vec<ReplicaConfig>,
    /// Sources of more replicas.
    pub discoveries: Vec<DiscoveryConfig>,
    /// Every route; at least one.
    pub routes: Vec<RouteSpec>,
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

impl Config {
    /// Reads and checks a file, with overrides from this process's environment.
    ///
    /// # Errors
    /// Returns the first fault, with line, column and a remedy.
    pub fn load(path: &Path) -> Result<Self, ConfigError> {
        Self::load_with(path, std::env::vars())
    }

    /// Reads and checks a file, with overrides from `environment`.
    ///
    /// # Errors
    /// Returns the first fault, with line, column and a remedy.
    pub fn load_with(
        path: &Path,
        environment: impl IntoIterator<Item = (String, String)>,
    ) -> Result<Self, ConfigError> {
        let text = std::fs::read_to_string(path).map_err(|error| {
            ConfigError::whole_file(
                path,
                format!("can't read it: {error}"),
                "check path and rights",
            )
        })?;
        let mut config = Self::parse(&text, path, environment)?;
        config.path = Some(path.to_owned());
        Ok(config)
    }

    /// Checks a config given as text. Errors show `path`, and file names in the config are relative
    /// to its folder.
    ///
    /// # Errors
    /// Returns the first fault, with line, column and a remedy.
    pub fn parse(
        text: &str,
        path: &Path,
        environment: impl IntoIterator<Item = (String, String)>,
    ) -> Result<Self, ConfigError> {
        let source = Arc::new(error::Source::new(path, text));
        let file = file::read(&source, environment)?;
        lower::lower(&source, file)
    }
}

/// Returns the JSON Schema of the config file.
#[must_use]
pub fn schema() -> serde_json::Value {
    schemars::schema_for!(file::ConfigFile).to_value()
}
