//! `spillway` as processes on this machine: clusters, single nodes, and the commands of operators.
#![expect(clippy::unwrap_used, reason = "a test's helper fails by panicking")]

mod caller;
mod certificates;
mod completions;
mod config;
mod first_hour;
#[cfg(target_os = "linux")]
mod hostile_replicas;
mod machines;
mod operations;
mod slips;
mod stopping;
