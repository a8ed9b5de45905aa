//! Trials of the data path: one node with emulated replicas, or several regions, under overload and
//! faults. Results are measured from the client's side.
//!
//! Errors here are only read by people, so they are `anyhow`'s.

mod abuse;
mod attack;
mod kill;
mod overload;
mod probes;
mod region;
mod request;
mod retry_after;
mod rolling;
mod sick;
mod stage;
mod storm;
mod trial;

pub use trial::{LoadTrial, run};
