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
mod disk_delay;
mod failover;
mod files;
mod grow;
pub(crate) mod inside;
mod linear;
mod part;
pub(crate) mod patience;
mod quorum;
mod repeated;
pub(crate) mod report;
pub(crate) mod site;
pub(crate) mod site_profile;
mod slowdisk;

pub use client::{ApiAnswer, ApiClient, CallError};
pub use cluster::{State, TrialCluster};
pub use part::{TrialPart, run};
pub use report::{Figure, ReportCheck, TrialReport};
