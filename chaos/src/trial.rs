//! The control plane on trial: real nodes in regions of a [`crate::wan`], driven through their admin
//! API, broken, measured, and judged by [`crate::linear`].
//!
//! Errors here are for people alone, so they are `anyhow`'s.

mod api;
mod boot;
mod bridge;
mod client;
mod cluster;
mod commit;
mod crash;
mod failover;
mod files;
mod flow;
mod grow;
mod linear;
mod page;
mod plan;
mod process;
mod quorum;
mod report;
mod site;
mod slowdisk;
mod task;

pub use client::{Answer, CallError, Client};
pub use cluster::{Cluster, State};
pub use page::write_section;
pub use plan::{Part, Plan, Wan, run};
pub use report::{Check, Figure, Report};
