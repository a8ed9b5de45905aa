//! One gateway process: workers, reload, admin listener, drain.

mod access;
mod admin;
mod agreed;
mod all_nodes;
mod certificates;
pub mod cluster;
mod data_path;
mod discovery_watch;
mod explain;
mod fold;
#[cfg(any(test, fuzzing))]
pub mod fuzz;
mod health_watch;
mod keeper;
mod liveness;
mod local_node;
mod locating;
mod memory;
mod memory_limit;
mod node;
mod node_tasks;
mod open_files;
mod outcomes;
mod overview;
mod peer_answers;
mod preflight;
mod questions;
mod reload;
mod requests;
mod rollouts;
mod room;
mod route_fields;
mod scrape;
mod steering;
mod usage;
mod usage_of_nodes;
mod workers;
mod world;

pub use admin::OWN_AGENT;
pub use liveness::{Hung, Liveness};
pub use memory::reclaim_memory;
pub use node::{Node, StartError, Stopped};
pub use preflight::preflight;
pub use spillway_admin::{FieldForm, ReasonKind, ReasonText, Resource, ResourceField};
pub use spillway_front::port_holder::{PortTransport, holder_of};
pub use spillway_request::gateway::Gateway;
