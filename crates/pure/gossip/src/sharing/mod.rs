//! Prompts that nodes of one region sent to its replicas, shared among these nodes.
//!
//! [`Sharing`] is a state machine: feed it the prompts that were sent, [`Sharing::flush`] due
//! entries into datagrams, and give it the datagrams of other nodes. All nodes keep the same
//! *chains*, block by block: a prompt costs 8 bytes for each block that no node has shared before,
//! and some 14 more. A node that lacks the blocks before an entry asks its sender, which sends the
//! whole chain to that node.

mod chains;
mod counters;
mod frame;
mod machine;
mod queue;

pub use counters::SharingCounters;
#[cfg(any(test, fuzzing))]
pub(crate) use frame::Frame;
pub(crate) use frame::KIND as PROMPTS_KIND;
pub use machine::{ShareError, Sharing, SharingConfig, SiblingNews, To};

#[cfg(test)]
mod sharing_test;
