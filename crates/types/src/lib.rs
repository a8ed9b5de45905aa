//! Ids, units and the facts about one request that every other crate speaks of.
//!
//! Pure: no I/O, no clock, no randomness. Everything here is cheap to clone.

mod block_hashes;
mod deadline;
mod gap_histogram;
mod ids;
mod inquiry;
mod outcome;

pub use block_hashes::BlockHashes;
pub use deadline::Deadline;
pub use gap_histogram::{GAP_BOUNDS_S, GapHistogram};
pub use ids::{ModelName, ReplicaName, ReplicaSlot, RouteName};
pub use inquiry::Inquiry;
pub use outcome::{End, Outcome, TokenCounts};
