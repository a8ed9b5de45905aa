//! The front door: listeners, client connections, authentication, and memory of request bodies.
//!
//! Requests are passed to the implementation of [`client::Serve`]; nothing here knows replicas.

pub mod access;
pub mod body_budget;
mod body_shares;
pub mod client;
mod close_reason;
pub mod front_door;
#[cfg(any(test, fuzzing))]
pub mod fuzz;
pub mod port_holder;
mod shares;
