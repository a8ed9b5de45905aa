//! Model of an LLM inference engine in virtual time: iteration-level batching and a paged KV cache.
//!
//! Sans-I/O: the caller owns the clock. It hands requests in with [`Engine::submit`], asks
//! [`Engine::next_step_at`] when to come back, and calls [`Engine::step`] then. The emulator drives
//! it in real time, a discrete-event simulator as fast as it can. Same calls, same answers.

mod batch;
mod config;
mod engine;
mod kv;
mod profile;
mod request;
mod sequence;

pub use config::EngineConfig;
pub use engine::{Engine, Event, Stats, StepReport, StepStart};
pub use profile::{Profile, StepCost, UnknownProfile};
pub use request::{Rejected, Request, RequestId, block_hashes};
