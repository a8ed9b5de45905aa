//! The replicated log: Raft over QUIC links, durable.
//!
//! [`Consensus`] keeps one [`Machine`] the same on all nodes of a cluster. Its log and votes are on
//! disk before anything is acknowledged; the messages between nodes are its own. openraft decides,
//! `disk` stores, `net` communicates, and `rules` holds the pure parts.

mod backup;
mod config;
mod consensus;
mod disk;
mod error;
#[cfg(any(test, fuzzing))]
pub mod fuzz;
mod ids;
mod machine;
mod net;
mod peer_server;
mod proposer;
mod raft;
mod rules;
mod state_machine;
mod status;
mod trouble;
mod wire;

pub use backup::{Founder, RestoreError, force_new_cluster, restore, restore_bytes};
pub use config::{Compaction, RaftConfig};
pub use consensus::{Consensus, Consistency, Former, Proposed, Read};
pub use disk::{DiskClock, DiskError, DiskTimes, FolderOwner, discard_blank, owner_of};
pub use error::{ChangeError, FormError, ProposeError, RaftStartError, ReadError};
pub use ids::{Member, RandomnessError, random_id};
pub use machine::{Machine, MachineError};
pub use rules::budget::{BudgetConfig, Urgency};
pub use rules::formation::{Seed, seed_ids};
pub use rules::timing::Timing;
pub use spillway_types::{ClusterId, DiskId, NodeId};
pub use status::{Role, Status};
pub use trouble::Trouble;
pub use wire::WireVersion;

/// Limit in bytes of the frame of a command. Larger data does not belong into a log that every node
/// keeps in memory.
pub const COMMAND_BYTES_MAX: usize = 64 << 10;
/// Limit in bytes of the frame of an outcome.
pub const OUTCOME_BYTES_MAX: usize = 256 << 10;
/// Limit in bytes of a snapshot, which is held in memory as a whole while it is made or sent.
pub const SNAPSHOT_BYTES_MAX: usize = 64 << 20;

#[cfg(test)]
mod consensus_test;
