//! Model server that behaves like a GPU engine, for demos, tests and chaos tests.
//!
//! [`Emulator`] hosts any number of replicas in one process. Each replica has its own port and its
//! own `spillway_engine::Engine`, which runs in real time × `time_scale`. Replicas speak the APIs
//! of OpenAI and Anthropic and KServe V2 over HTTP/1.1 and h2c, and KServe V2 also over gRPC. They report vLLM's
//! metrics, and they break on demand ([`Fault`]). The manual is docs/reference/emulator.md.

mod answer;
mod api;
mod body;
mod clock;
mod config;
mod driver;
mod emulator;
mod event_stream;
mod fault;
mod freeze_gate;
pub mod kserve;
mod kv_events;
mod ledger;
mod life;
mod metrics;
mod options;
mod pattern;
mod pieces;
mod replica;
mod replica_port;
mod schema;
mod server;
mod socket;
mod stats;
mod text;
mod usage;
mod voice;
mod wire;

pub use config::{EmulatorConfig, EmulatorConfigError};
pub use emulator::{Emulator, EmulatorStartError};
pub use fault::{Close, DeathSign, Fault, FaultError};
pub use ledger::{CallOutcome, RequestRecord};
pub use options::{ReplyOptions, StreamOptionsSchema};
pub use replica::ReplicaHandle;
pub use spillway_engine::{EngineConfig, Profile};
pub use stats::ReplicaStats;
pub use usage::{TokenUsage, UsageReport, UsageTotals};
