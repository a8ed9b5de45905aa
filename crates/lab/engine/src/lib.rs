//! Model of an LLM inference engine in virtual time: continuous batching and a paged KV cache.
//!
//! The crate does no I/O, and the caller owns the clock. The caller hands requests in with
//! [`Engine::submit`], asks [`Engine::next_step_at`] for the time of the next step, and calls
//! [`Engine::step`] then. The emulator drives the engine in real time, a discrete-event simulator
//! as fast as it can. The same calls give the same answers.

mod batch;
mod changes;
mod config;
mod engine;
mod kv;
mod profile;
mod request;
mod sequence;

pub use changes::CacheChange;
pub use config::EngineConfig;
pub use engine::{Engine, EngineEvent, Stats, StepReport, StepStart};
pub use profile::{Profile, StepCost, UnknownProfileError};
pub use request::{EngineRequest, RejectedError, RequestId, block_hashes};
