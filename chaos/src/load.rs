//! Trials of the data path: one node with emulated replicas, or several regions, under overload and
//! faults. Results are measured from the client's side.
//!
//! Errors here are only read by people, so they are `anyhow`'s.

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
