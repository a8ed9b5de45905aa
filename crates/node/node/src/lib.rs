//! One gateway process: workers, reload, admin listener, drain.

mod access;
mod admin;
mod agreed;
mod all_nodes;
mod certificates;
pub mod cluster;
mod discovery_watch;
mod explain;
mod feedback;
mod fold;
#[cfg(any(test, fuzzing))]
pub mod fuzz;
mod health_watch;
mod keeper;
mod liveness;
mod locating;
mod memory;
mod memory_limit;
mod node;
mod node_tasks;
mod open_files;
mod overview;
mod preflight;
mod reload;
mod requests;
mod room;
mod route_fields;
mod steering;
mod usage;
mod workers;
mod world;

pub use admin::OWN_AGENT;
pub use liveness::{Hung, Liveness};
pub use memory::reclaim_memory;
pub use node::{Node, StartError, Stopped};
pub use preflight::preflight;
pub use spillway_admin::{
    FieldForm, ReasonKind, ReasonText, RecordField, Resource, ResourceField, record_fields,
};
pub use spillway_front::port_holder::{PortTransport, holder_of};
pub use spillway_request::gateway::Gateway;
