//! Every metric name, the registry behind them, and log set-up.
//!
//! The data path never calls this crate's recording functions: it leaves `Outcome`s in a bounded
//! queue, and one feedback task brings them here.

mod arm_metrics;
mod catalog;
mod certificate_metrics;
mod choices;
mod control_metrics;
mod dashboard;
mod discovery_metrics;
mod dns_metrics;
mod exposition;
mod geo_metrics;
mod knowledge_metrics;
mod limit_metrics;
mod line_writer;
mod live;
mod log_pace;
pub mod logs;
mod metrics;
mod node_metrics;
mod overflow_metrics;
mod prediction_error;
mod region_metrics;
mod register;
mod replica_metrics;
mod request_metrics;
mod route_model_metrics;
mod shed_metrics;
mod stream_gaps;
mod usage;

pub use catalog::{GROUPS, MetricGroup, MetricKind, MetricSpec, reference};
pub use certificate_metrics::LiveCertificates;
pub use control_metrics::{LiveControl, LiveItems};
pub use dashboard::dashboard;
pub use discovery_metrics::LiveDiscovery;
pub use dns_metrics::{LiveDns, LiveDnsRegion};
pub use exposition::Exposition;
pub use geo_metrics::LiveGeo;
pub use knowledge_metrics::{LiveHot, LiveKnowledge};
pub use limit_metrics::LiveLimit;
pub use line_writer::{LineDestination, LineWriter};
pub use live::{LastResort, Live, LiveHealth};
pub use metrics::Metrics;
pub use overflow_metrics::LiveOverflow;
pub use region_metrics::{LiveCluster, LiveConnection, LivePeer, LiveRegion, LiveRegionModel};
pub use replica_metrics::LiveReplica;
pub use usage::LiveBudget;
