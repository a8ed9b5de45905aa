//! The way of a node into a running cluster, and its discovery that it was removed.
//!
//! A node asks at the gate of any node that its config names. The node that was asked proposes the
//! registration, wherever the leader is, and answers with the number that the new member has from
//! then on.

mod asking;
#[cfg(any(test, fuzzing))]
pub mod fuzz;
mod message;
mod note;
mod server;
mod standing;

pub(crate) use asking::run;
pub(crate) use note::disk_to_join_with;
pub(crate) use server::JoinServer;
pub(crate) use standing::run as watch_standing;

#[cfg(test)]
mod server_test;
