//! The config file: read, checked and turned into what each part takes.
//!
//! Reading happens once, here. A [`Config`] can't be wrong later; everything that can be is found
//! with its line and a remedy before any port is opened.

mod access_section;
mod at_start;
mod care_section;
mod cluster_section;
mod discovery_section;
mod environment;
mod error;
mod file;
#[cfg(any(test, fuzzing))]
pub(crate) mod fuzz;
mod health_section;
mod hedge_section;
mod kind_settings;
mod limit_section;
mod lower;
mod names;
mod policy_sections;
mod prefix_section;
mod replica_section;
mod route_section;
mod section;
mod session_section;
mod spill_section;
mod split_section;
mod versions;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use spillway_admin::AdminConfig;
use spillway_proxy::{
    Cors, GatewayConfig, ListenerSpec, NameSpec, QueueSpec, RouteSpec, Timeouts, TlsIdentity,
};

pub use crate::keeper::{Care, Concurrency, ReplicaConfig};
pub use access_section::{AccessConfig, ListenerAccess};
pub(crate) use at_start::AtStart;
pub(crate) use care_section::CareDefaults;
pub use cluster_section::{ClusterConfig, PeerConfig, RegionConfig};
pub use discovery_section::DiscoveryConfig;
pub(crate) use discovery_section::{Found, read_replicas};
pub use error::ConfigError;
pub(crate) use kind_settings::{KindSettings, Preset};
pub use prefix_section::KnowledgeConfig;
pub(crate) use route_section::default_policy;
pub use section::WorkerLayout;
pub use spill_section::SpillConfig;

/// Where operators connect, and who may.
#[derive(Clone, Debug)]
pub struct AdminListener {
    /// IP address and port.
    pub address: SocketAddr,
    /// The admin API behind it.
    pub api: AdminConfig,
    /// Its certificate; `None` speaks cleartext.
    pub tls: Option<TlsIdentity>,
    /// The files that tokens and certificate were read from.
    pub(crate) files: Vec<PathBuf>,
}

/// A checked config.
#[derive(Debug)]
pub struct Config {
    /// Name of this node.
    pub node: String,
    /// Threads that serve requests.
    pub workers: usize,
    /// How those threads share the work.
    pub worker_layout: WorkerLayout,
    /// Addresses that clients connect to.
    pub listeners: Vec<ListenerConfig>,
    /// Address of metrics and health.
    pub admin: Option<AdminListener>,
    /// What the data path takes.
    pub gateway: GatewayConfig,
    /// How this node is one of several; `None` if it stands alone.
    pub cluster: Option<ClusterConfig>,
    /// When requests go to other regions.
    pub spill: SpillConfig,
    /// What is remembered of prompts and replicas.
    pub knowledge: KnowledgeConfig,
    /// Keys and tenants; they can change while the node runs.
    pub access: AccessConfig,
    /// Limits that this node enforces by itself; they can change while the node runs.
    pub limits: Vec<spillway_quota::LimitTerms>,
    /// What can change while the node runs.
    pub world: WorldConfig,
    /// How long the node serves as ever after it was told to stop, and says that it is not ready.
    pub drain_notice: std::time::Duration,
    /// How long requests may take to finish when the node stops.
    pub drain: std::time::Duration,
    /// The file this was read from, to be watched; `None` if it did not come from a file.
    pub path: Option<PathBuf>,
    /// What of it takes effect when a node starts.
    pub(crate) at_start: AtStart,
    /// The text this was read from.
    pub(crate) text: String,
}

/// One listening address.
#[derive(Debug)]
pub struct ListenerConfig {
    /// Where to listen; port 0 takes a free one.
    pub address: SocketAddr,
    /// Whether other processes that say the same may listen on the address too.
    pub shares_port: bool,
    /// How to treat those who connect.
    pub spec: ListenerSpec,
    /// How it finds out who asks; this can change while the node runs.
    pub access: ListenerAccess,
}

/// Replicas, routes and names: the part of the config that a reload replaces.
#[derive(Debug)]
pub struct WorldConfig {
    /// Every replica.
    pub replicas: Vec<ReplicaConfig>,
    /// Where more replicas come from.
    pub discoveries: Vec<DiscoveryConfig>,
    /// Every route; at least one.
    pub routes: Vec<RouteSpec>,
    /// What clients may ask for beyond the models that replicas serve.
    pub names: Arc<NameSpec>,
    /// What holds for replicas that come without a config.
    pub(crate) defaults: CareDefaults,
    /// Which web pages may use it.
    pub cors: Cors,
    /// Bounds on replicas, for routes that don't say otherwise.
    pub(crate) timeouts: Timeouts,
    /// How requests wait, by routes that don't say otherwise.
    pub(crate) queue: QueueSpec,
    /// Certificates of the TLS listeners, in the order of the listeners.
    pub identities: Vec<Option<TlsIdentity>>,
}

impl Config {
    /// Reads and checks a file, with overrides from this process's environment.
    ///
    /// # Errors
    /// Whatever is wrong with it first, with line, column and a remedy.
    pub fn load(path: &Path) -> Result<Self, ConfigError> {
        Self::load_with(path, std::env::vars())
    }

    /// Reads and checks a file, with overrides from `environment`.
    ///
    /// # Errors
    /// Whatever is wrong with it first, with line, column and a remedy.
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

    /// Checks a config given as text; `path` is what errors call it, and what file names in it are
    /// relative to.
    ///
    /// # Errors
    /// Whatever is wrong with it first, with line, column and a remedy.
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

/// The JSON Schema of the config file.
#[must_use]
pub fn schema() -> serde_json::Value {
    schemars::schema_for!(file::ConfigFile).to_value()
}
