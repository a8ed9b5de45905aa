//! The data path on trial: one node and emulated replicas, or several regions, under more load and
//! worse faults than they were made for. What must hold is measured from the client's side.
//!
//! Errors here are for people alone, so they are `anyhow`'s.

mod abuse;
mod attack;
mod caller;
mod comeback;
mod crowd;
mod kill;
mod lanes;
mod note;
mod overload;
mod plan;
mod region;
mod request;
mod rolling;
mod sick;
mod stage;
mod storm;

pub use plan::{Plan, Trial, run};
