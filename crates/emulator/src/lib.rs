//! A model server that behaves like a GPU engine, for demos, tests and chaos.
//!
//! [`Emulator`] hosts any number of replicas in one process, each on its own port with its own
//! `spillway_engine::Engine`, run in real time × `time_scale`. It speaks the OpenAI API and KServe
//! V2 over HTTP/1.1 and h2c, KServe V2 also over gRPC, reports vLLM's metrics, and breaks on demand ([`Fault`]).
//! docs/emulator.md is the manual.

mod answer;
mod api;
mod body;
mod clock;
mod config;
mod door;
mod driver;
mod emulator;
mod fault;
pub mod kserve;
mod ledger;
mod metrics;
mod pattern;
mod replica;
mod schema;
mod server;
mod socket;
mod text;
mod voice;

pub use config::{Config, ConfigError};
pub use emulator::{Emulator, StartError};
pub use fault::{Close, Fault, FaultError};
pub use ledger::{Outcome, RequestRecord};
pub use replica::{EngineStats, ReplicaHandle, ReplicaStats};
pub use spillway_engine::{EngineConfig, Profile};
