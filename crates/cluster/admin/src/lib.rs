//! Admin API: operators read and change the state that all nodes agree on.
//!
//! [`Admin::answer`] answers requests for paths below `/v1/`. A single table of endpoints serves to
//! route requests, to check rights, and to make the OpenAPI document. Reads return the index that
//! they have seen and how old they can be; writes can be conditional, repeatable and dry.

mod access;
mod admin;
mod all_nodes;
mod answer;
mod call;
mod config;
pub mod connection_permits;
mod console;
mod docs;
mod endpoint;
mod error;
mod explain;
mod fault;
mod forms;
#[cfg(any(test, fuzzing))]
pub mod fuzz;
mod known_names;
mod listener;
mod live;
mod moved_load;
mod openapi;
mod orders;
mod overview;
mod patterns;
mod query;
mod reasons;
mod records;
mod reply;
mod requests;
mod resource;
mod route_check;
mod secrets;
mod static_file;
mod steering;
mod token_file;
mod usage;

pub use admin::Admin;
pub use all_nodes::{
    AllNodes, AllReplicas, ArmsOfNodes, Asking, HistoryScope, RegionReplica, RequestsOfNodes,
};
pub use answer::{Health, HealthReport, Problem, ProblemKind, Urgency, health_report};
pub use config::{AdminConfig, AdminRole, ConfigToken};
pub use console::console;
pub use docs::docs;
pub use explain::{Explain, ExplainError, ExplainRequest, Explaining};
pub use listener::{ListenerError, check_listener, connection_builder};
pub use openapi::openapi;
pub use orders::Recorded;
pub use overview::{
    BusiestClient, CertificateEnd, DataRoom, DiscoveryOverview, HistoryPointOverview,
    LackingReplica, LimitedClientOverview, ListenerOverview, Listing, Looking, NodeOverview,
    NodePhase, NodeProblem, Overview, PeerOverview, RefusedConfig, RegionLocation, RegionOverview,
    ReplicaOverview, ReplicaTally, RequestHistoryOverview, RequestTroubleOverview, RouteOverview,
    Summing, TroubleCause,
};
pub use reasons::{ReasonKind, ReasonText};
pub use reply::{Body, Reply};
pub use requests::{FilterField, RequestFilter, Requests};
pub use resource::{FieldForm, Resource, ResourceColumn, ResourceField};
pub use route_check::RouteCheck;
pub use steering::{Steered, SteeredRegion};
pub use token_file::{TokenFileError, parse_token_file};
pub use usage::{AskedNode, BudgetState, ClusterUsage, UsageEntry, UsageSum};

#[cfg(test)]
mod admin_test;
