//! The control plane on trial: real nodes in regions of a [`crate::wan`], driven through their admin
//! API, broken, measured, and judged by [`crate::linear`].
//!
//! Errors here are for people alone, so they are `anyhow`'s.

mod api;
mod boot;
mod bridge;
mod client;
pub(crate) mod cluster;
mod commit;
mod crash;
pub(crate) mod door;
mod failover;
pub(crate) mod files;
pub(crate) mod flow;
pub(crate) mod gear;
mod grow;
mod linear;
mod page;
mod plan;
pub(crate) mod process;
mod quorum;
pub(crate) mod report;
pub(crate) mod site;
mod slowdisk;
pub(crate) mod task;

pub use client::{Answer, CallError, Client};
pub use cluster::{Cluster, State};
pub use page::write_section;
pub use plan::{Part, Plan, Wan, run};
pub use report::{Check, Figure, Report};
