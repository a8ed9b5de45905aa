//! What nodes of one region tell each other of the prompts that they sent to its replicas.
//!
//! [`Sharing`] is a state machine: tell it what was sent, [`Sharing::flush`] what is due into
//! datagrams, and give it those of the others. All nodes keep the same *chains*, block by block, so
//! that a prompt costs 8 bytes for each block that none of them has told before, and some 14 more.
//! Whoever lacks what an entry follows on asks its sender, who tells the whole chain to it alone.

mod chains;
mod counters;
mod frame;
mod machine;
mod queue;

pub use counters::SharingCounters;
#[cfg(any(test, fuzzing))]
pub(crate) use frame::Frame;
pub(crate) use frame::KIND as PROMPTS_KIND;
pub use machine::{Heard, ShareRefusal, Sharing, SharingConfig, To};

#[cfg(test)]
mod sharing_test;
