//! The sections of a config file, as they are written.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::Deserialize;
use spillway_replicas::Mapping;
use spillway_transport::Limits;
use spillway_view::Retry;
use toml::Spanned;

use crate::access_log_section::AccessLogSection;
use crate::access_section::{AuthSection, KeySection, TenantSection};
use crate::cluster_section::{ClusterSection, PeerSection};
use crate::discovery_section::DiscoverySection;
use crate::dns_section::DnsSection;
use crate::geo_section::{GeoSection, ResidencySection};
use crate::health_section::{HealthSection, StandbySection};
use crate::limit_section::LimitSection;
use crate::names::FallbackSection;
use crate::prefix_section::PrefixSection;
use crate::region_section::RegionSection;
use crate::replica_section::ReplicaSection;
use crate::route_section::RouteSection;
use crate::schema_transforms::{Required, Values, Weights};
use crate::section::{AdminSection, CorsSection, ListenerSection, NodeSection, TimeoutsSection};
use crate::spill_section::SpillSection;
use crate::split_section::SplitSection;
use crate::traces_section::TracesSection;
use crate::usage_section::{PriceSection, UsageSection};

/// All sections of a config file.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(title = "Spillway configuration")]
pub(crate) struct ConfigFile {
    /// Name, region and threads of this process.
    #[serde(default)]
    #[schemars(extend("x-restart" = true))]
    pub(crate) node: NodeSection,
    /// Addresses for clients.
    #[serde(default)]
    #[schemars(extend("x-restart" = true))]
    pub(crate) listener: Vec<ListenerSection>,
    /// Web pages that may call the API from a browser.
    #[serde(default)]
    pub(crate) cors: CorsSection,
    /// Authentication of clients.
    #[serde(default)]
    pub(crate) auth: AuthSection,
    /// Keys of clients.
    #[serde(default)]
    pub(crate) key: Vec<KeySection>,
    /// Settings of tenants, in addition to their keys.
    #[serde(default)]
    pub(crate) tenant: Vec<TenantSection>,
    /// Rate limits and concurrency limits on this node.
    #[serde(default)]
    pub(crate) limit: Vec<LimitSection>,
    /// Storage of the usage of tenants, keys and models.
    #[serde(default)]
    #[schemars(extend("x-restart" = true))]
    pub(crate) usage: UsageSection,
    /// Prices of tokens.
    #[serde(default)]
    pub(crate) price: Vec<PriceSection>,
    /// Location databases that map clients to countries.
    #[serde(default)]
    pub(crate) geo: GeoSection,
    /// Rules for the regions that may serve clients of certain countries.
    #[serde(default)]
    pub(crate) residency: Vec<ResidencySection>,
    /// Listener of metrics, health and the admin API, for operators.
    #[serde(default)]
    #[schemars(extend("x-restart" = true))]
    pub(crate) admin: Option<AdminSection>,
    /// Log of completed requests.
    #[serde(default)]
    pub(crate) access_log: AccessLogSection,
    /// Spans of requests, sent to a collector.
    #[serde(default)]
    pub(crate) traces: TracesSection,
    /// Limits on clients: sizes, connections, waiting requests.
    #[serde(default)]
    #[schemars(extend("x-restart" = true))]
    pub(crate) limits: Limits,
    /// Time limits for replicas.
    #[serde(default)]
    pub(crate) timeouts: TimeoutsSection,
    /// Index of cached prompts, and learned speeds of replicas.
    #[serde(default)]
    #[schemars(extend("x-restart" = true))]
    pub(crate) prefix: PrefixSection,
    /// Rules for retries at another replica.
    #[serde(default)]
    #[schemars(extend("x-restart" = true))]
    pub(crate) retry: Retry,
    /// Aliases of models.
    #[serde(default)]
    #[schemars(
        with = "BTreeMap<String, String>",
        transform = Values("Model or split that the alias refers to.")
    )]
    pub(crate) aliases: BTreeMap<String, Spanned<String>>,
    /// Names whose requests are split between models.
    #[serde(default)]
    pub(crate) split: Vec<SplitSection>,
    /// Models to try, in this order, if the named model can't serve a request.
    #[serde(default)]
    #[schemars(
        with = "BTreeMap<String, Vec<String>>",
        transform = Values("Models to try instead of the named one, in this order.")
    )]
    pub(crate) fallback: FallbackSection,
    /// Model servers.
    #[serde(default)]
    #[schemars(transform = Required(ReplicaSection::REQUIRED))]
    pub(crate) replica: Vec<ReplicaSection>,
    /// Sources of replicas that change at run time.
    #[serde(default)]
    pub(crate) discovery: Vec<DiscoverySection>,
    /// Weights of hardware classes by name, e.g. `h100 = 4`.
    #[serde(default)]
    #[schemars(
        with = "BTreeMap<String, u32>",
        transform = Values("Weight of the class's replicas relative to others, 1 to 1,000."),
        transform = Weights
    )]
    pub(crate) classes: BTreeMap<String, u32>,
    /// Mappings of metrics for servers that no `kind` covers, by name.
    #[serde(default)]
    pub(crate) mapping: BTreeMap<String, Mapping>,
    /// Health checks, outlier ejection and circuit breakers.
    #[serde(default)]
    pub(crate) health: HealthSection,
    /// Conditions for activating standby replicas.
    #[serde(default)]
    pub(crate) standby: StandbySection,
    /// Membership of this node in a cluster.
    #[serde(default)]
    #[schemars(extend("x-restart" = true))]
    pub(crate) cluster: Option<ClusterSection>,
    /// Other nodes of the cluster.
    #[serde(default)]
    #[schemars(extend("x-restart" = true))]
    pub(crate) peer: Vec<PeerSection>,
    /// Weights, prices and locations of regions.
    #[serde(default)]
    #[schemars(extend("x-restart" = true))]
    pub(crate) region: Vec<RegionSection>,
    /// Name server that directs clients to regions.
    #[serde(default)]
    #[schemars(extend("x-restart" = true))]
    pub(crate) dns: Option<DnsSection>,
    /// Conditions for sending requests to other regions, and limits on waiting requests.
    #[serde(default)]
    #[schemars(extend("x-restart" = true))]
    pub(crate) spill: SpillSection,
    /// Rules for serving sets of requests.
    #[serde(default)]
    #[schemars(transform = Required(&["name"]))]
    pub(crate) route: Vec<RouteSection>,
}
