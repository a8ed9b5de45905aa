//! The config file as it is written.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::Deserialize;
use spillway_replicas::Mapping;
use toml::Spanned;
use toml::de::{DeTable, Deserializer};

use crate::config::access_section::{AuthSection, KeySection, TenantSection};
use crate::config::cluster_section::{ClusterSection, PeerSection, RegionSection};
use crate::config::discovery_section::DiscoverySection;
use crate::config::environment;
use crate::config::error::{ConfigError, Source};
use crate::config::health_section::{HealthSection, StandbySection};
use crate::config::limit_section::LimitSection;
use crate::config::names::FallbackSection;
use crate::config::prefix_section::PrefixSection;
use crate::config::replica_section::ReplicaSection;
use crate::config::route_section::RouteSection;
use crate::config::section::{
    AdminSection, CorsSection, LimitsSection, ListenerSection, NodeSection, RetrySection,
    TimeoutsSection,
};
use crate::config::spill_section::SpillSection;
use crate::config::split_section::SplitSection;

/// Everything that a config file can say.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(title = "Spillway configuration")]
pub(crate) struct ConfigFile {
    /// Who this process is.
    #[serde(default)]
    pub(crate) node: NodeSection,
    /// Addresses that clients connect to.
    #[serde(default)]
    pub(crate) listener: Vec<ListenerSection>,
    /// Which web pages may use it from a browser.
    #[serde(default)]
    pub(crate) cors: CorsSection,
    /// How clients show who they are.
    #[serde(default)]
    pub(crate) auth: AuthSection,
    /// What lets clients in.
    #[serde(default)]
    pub(crate) key: Vec<KeySection>,
    /// What is said of tenants besides their keys.
    #[serde(default)]
    pub(crate) tenant: Vec<TenantSection>,
    /// How much somebody may use of this node.
    #[serde(default)]
    pub(crate) limit: Vec<LimitSection>,
    /// Metrics and health for operators.
    #[serde(default)]
    pub(crate) admin: Option<AdminSection>,
    /// What clients may take.
    #[serde(default)]
    pub(crate) limits: LimitsSection,
    /// How long replicas may take.
    #[serde(default)]
    pub(crate) timeouts: TimeoutsSection,
    /// What is remembered of prompts.
    #[serde(default)]
    pub(crate) prefix: PrefixSection,
    /// When another replica is tried.
    #[serde(default)]
    pub(crate) retry: RetrySection,
    /// Model names that stand for others.
    #[serde(default)]
    #[schemars(with = "BTreeMap<String, String>")]
    pub(crate) aliases: BTreeMap<String, Spanned<String>>,
    /// Names whose requests are split between models.
    #[serde(default)]
    pub(crate) split: Vec<SplitSection>,
    /// Models that are asked, in this order, if the named one can't serve a request.
    #[serde(default)]
    #[schemars(with = "BTreeMap<String, Vec<String>>")]
    pub(crate) fallback: FallbackSection,
    /// Model servers.
    #[serde(default)]
    pub(crate) replica: Vec<ReplicaSection>,
    /// Replicas that come and go by themselves.
    #[serde(default)]
    pub(crate) discovery: Vec<DiscoverySection>,
    /// Weights of hardware classes by name, e.g. `h100 = 4`.
    #[serde(default)]
    #[schemars(with = "BTreeMap<String, u32>")]
    pub(crate) classes: BTreeMap<String, Spanned<u32>>,
    /// How load is read from servers that no `kind` knows, by name.
    #[serde(default)]
    pub(crate) mapping: BTreeMap<String, Mapping>,
    /// How the node finds out whether replicas work.
    #[serde(default)]
    pub(crate) health: HealthSection,
    /// When replicas in reserve are brought in.
    #[serde(default)]
    pub(crate) standby: StandbySection,
    /// How this node is one of several.
    #[serde(default)]
    pub(crate) cluster: Option<ClusterSection>,
    /// The other nodes.
    #[serde(default)]
    pub(crate) peer: Vec<PeerSection>,
    /// What speaks for or against regions.
    #[serde(default)]
    pub(crate) region: Vec<RegionSection>,
    /// When requests go to other regions, and which ones are taken in.
    #[serde(default)]
    pub(crate) spill: SpillSection,
    /// Sets of requests and how they are served.
    #[serde(default)]
    pub(crate) route: Vec<RouteSection>,
}

/// Reads the file's text, with overrides from the environment.
///
/// # Errors
/// If it is not TOML, has unknown keys or values of the wrong type.
pub(crate) fn read(
    source: &Source,
    variables: impl IntoIterator<Item = (String, String)>,
) -> Result<ConfigFile, ConfigError> {
    let overrides = environment::overrides(variables);
    let mut table = DeTable::parse(source.text()).map_err(|error| fault(source, &error))?;
    for given in &overrides {
        environment::apply(table.get_mut(), given).map_err(|message| {
            source.fault(0..0, message, "unset the variable or correct its name")
        })?;
    }
    ConfigFile::deserialize(Deserializer::from(table)).map_err(|error| fault(source, &error))
}

/// A parser's error as ours.
pub(crate) fn fault(source: &Source, error: &toml::de::Error) -> ConfigError {
    let message = error.message().to_owned();
    let remedy = if message.starts_with("unknown field") {
        "remove the key or correct its spelling; `spillway config schema` lists all"
    } else if message.starts_with("missing field") {
        "add the key; `spillway config schema` says what it means"
    } else {
        "correct the value; `spillway config schema` says what is allowed"
    };
    source.fault(error.span().unwrap_or(0..0), message, remedy)
}
