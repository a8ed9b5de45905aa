//! Caches of replicas that publish KV events: what their engines hold, in blocks of prompts.
//!
//! An engine names its blocks by hashes of tokens, the index by hashes of bytes. Each request
//! carries an id made of its prompt's last block, and the engine repeats the id in the events of
//! the blocks that it stores. So the engine's chain of blocks belongs to a chain of the index, and
//! the number of the prompt's tokens shows which tokens are which bytes. `engine_blocks` keeps both
//! chains and their ties, `mirror` decides for one replica.

mod engine_blocks;
mod mirror;
mod prompts;
mod session;
mod token_map;

pub use mirror::{KvMirror, KvState};
pub use prompts::{ReplyFigures, Sender};
pub use session::{chain_end_of, kv_session_id};
