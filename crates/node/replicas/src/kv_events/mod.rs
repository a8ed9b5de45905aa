//! KV events of engines: the blocks that a replica's prefix cache takes in and gives up.
//!
//! vLLM publishes them over ZeroMQ, on a port of their own. `zmtp` speaks that protocol as far as a
//! subscriber needs it, `wire` reads the messages, and `follow` keeps one subscription.

mod follow;
mod wire;
mod zmtp;

pub use follow::{KvDelivery, KvNews, KvQueue, KvSource, follow_kv_events};
#[cfg(any(test, fuzzing))]
pub(crate) use wire::read_batch;
#[cfg(any(test, fuzzing))]
pub(crate) use zmtp::read_messages;
