//! The front door: listeners, client connections, authentication, and memory of request bodies.
//!
//! Requests go on to what implements [`client::Serve`]; nothing here knows replicas.

pub mod access;
pub mod body_budget;
pub mod client;
pub mod front_door;
#[cfg(any(test, fuzzing))]
pub mod fuzz;
pub mod port_holder;
