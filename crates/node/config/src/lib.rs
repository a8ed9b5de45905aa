//! The config file: read, checked and turned into the settings of each part.
//!
//! Reading happens once, here. A [`Config`] can't be wrong later: every error is found with its
//! line and a remedy before any port is opened. All errors are reported at once.

mod access_log_section;
mod access_section;
mod addresses;
mod at_start;
mod care_section;
mod changes;
mod cluster_section;
mod config;
mod credential_section;
mod discovery_section;
mod dns_section;
mod environment;
mod error;
mod explanation;
mod file;
#[cfg(any(test, fuzzing))]
pub mod fuzz;
mod geo_section;
mod health_section;
mod hedge_section;
mod kind_settings;
mod limit_section;
mod load;
mod lower;
mod models_section;
mod names;
mod no_effect;
mod numbers;
mod overflow_section;
mod overflow_terms;
mod policy_sections;
mod prefix_section;
mod recovery;
mod reference;
mod region_section;
mod replica;
mod replica_list;
mod replica_section;
mod replica_tls;
mod replica_url;
mod route_record;
mod route_section;
mod schema_node;
mod schema_transforms;
mod secrets;
mod section;
mod session_section;
mod setting_variables;
mod source;
mod spill_section;
mod split_section;
mod start_positions;
mod suggestion;
mod syntax;
mod traces_section;
mod tree;
mod unused_terms;
mod usage_section;
mod usage_warnings;
mod validation;
mod versions;
mod warnings;

pub use access_log_section::{AccessLogConfig, LoggedRequests};
pub use access_section::{AccessConfig, ListenerAccess, moment_ms};
pub use at_start::AtStart;
pub use care_section::CareDefaults;
pub use changes::changes;
pub use cluster_section::{ClusterConfig, PeerConfig};
pub use config::{AdminListener, Config, ListenerConfig, WorldConfig};
pub use discovery_section::{DiscoveryConfig, DiscoveryOrigin, read_replicas};
pub use replica::{Care, Concurrency, ReplicaConfig};

pub use error::{ConfigError, ConfigErrors, Mark, Severity, Shown, SourcePosition};
pub use geo_section::GeoConfig;

pub use load::schema;
pub use overflow_terms::OverflowTerms;
pub use reference::reference;
pub use region_section::RegionConfig;
pub use route_record::{RoutesSaid, check_route, said_routes};
pub use route_section::default_policy;
pub use secrets::shareable;
pub use setting_variables::setting_variables;
pub use source::ReadFiles;
pub use spill_section::SpillConfig;
pub use start_positions::{ClusterPositions, SettingPosition, StartPositions};
pub use usage_section::UsageConfig;
