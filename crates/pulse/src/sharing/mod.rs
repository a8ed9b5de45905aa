//! Prompts that nodes of one region sent to its replicas, told to each other.
//!
//! [`Sharing`] is a state machine: tell it what was sent, [`Sharing::flush`] what is due into
//! datagrams, and give it the datagrams of others. All nodes keep the same *chains*, block by
//! block: a prompt costs 8 bytes for each block that no node has told before, and some 14 more. A
//! node that lacks the blocks before an entry asks its sender, which tells that node the whole
//! chain.

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
