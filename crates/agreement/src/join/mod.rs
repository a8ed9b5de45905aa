//! How a node comes into a cluster that runs already, and learns that it is not in it any more.
//!
//! The node asks at the gate of any node that its config names. That one writes the registration,
//! wherever the leader is, and answers with the number that the node has from then on.

mod asking;
#[cfg(any(test, fuzzing))]
pub mod fuzz;
mod gate;
mod message;
mod note;
mod standing;

pub(crate) use asking::run;
pub(crate) use gate::Porter;
pub(crate) use note::disk_to_join_with;
pub(crate) use standing::{removed_reason, run as watch_standing};

#[cfg(test)]
mod gate_test;
