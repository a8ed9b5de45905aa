//! Trials of the control plane: real nodes in the regions of a [`crate::wan`], driven through their
//! admin API, broken and measured. [`crate::linear`] checks the histories.
//!
//! Errors here are only read by people, so they are `anyhow`'s.

mod api;
mod boot;
mod bridge;
mod client;
pub(crate) mod client_stream;
pub(crate) mod cluster;
mod commit;
mod crash;
pub(crate) mod door;
mod failover;
pub(crate) mod files;
mod grow;
mod linear;
mod page;
mod plan;
pub(crate) mod process;
mod quorum;
pub(crate) mod report;
pub(crate) mod site;
pub(crate) mod site_profile;
mod slowdisk;
pub(crate) mod task;

pub use client::{ApiAnswer, ApiClient, CallError};
pub use cluster::{State, TrialCluster};
pub use page::write_section;
pub use plan::{TrialPart, TrialPlan, Wan, run};
pub use report::{Figure, ReportCheck, TrialReport};
