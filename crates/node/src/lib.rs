//! One gateway process: workers, reload, admin listener, drain.

mod access;
mod admin;
mod agreed;
mod certificates;
pub mod cluster;
mod explain;
mod feedback;
mod fold;
#[cfg(any(test, fuzzing))]
pub mod fuzz;
mod keeper;
mod liveness;
mod locating;
mod memory;
mod node;
mod overview;
mod preflight;
mod reload;
mod requests;
mod resolve;
mod room;
mod steering;
mod usage;
mod workers;
mod world;

pub use liveness::{Hung, Liveness};
pub use memory::reclaim_memory;
pub use node::{Node, StartError, Stopped};
pub use preflight::preflight;
pub use spillway_front::port_holder::{PortTransport, holder_of};
pub use spillway_request::gateway::Gateway;
