//! Control plane of one node: forms the cluster, proposes commands, follows the agreed state.
//!
//! [`ControlPlane`] joins two crates: `spillway-cluster-state` decides what an entry does, and
//! `spillway-raft` brings the same entries to all nodes. It forms the cluster, proposes commands,
//! keeps the voters as the rule wants them, remembers recent changes for watchers, and publishes
//! the applied state for the data path, which never waits for any of this.

mod attempts;
mod beginning;
mod changes;
mod clock;
mod config;
mod control_plane;
mod formation;
mod hand_over;
mod hints;
mod join;
mod log_keeper;
mod machine;
mod membership;
mod publish;
mod removed;
mod start;
mod write;

pub use changes::{Changed, TooOldError};
pub use config::ControlPlaneConfig;
pub use control_plane::{ControlPlane, NoSuchNodeError};
pub use hints::HintCounts;
#[cfg(any(test, fuzzing))]
pub use join::fuzz;
pub use spillway_raft::{ProposeError, Proposed};

#[cfg(test)]
mod control_plane_test;
#[cfg(test)]
mod hints_test;
#[cfg(test)]
mod log_keeper_test;
