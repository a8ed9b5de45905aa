//! Traces of requests, and their export to a collector by OTLP.
//!
//! A request that ended is an outcome. [`Sampler`] decides whether it is exported and [`spans`]
//! makes spans of it, both pure; [`Traces`] has a thread of its own that sends them. Callers that
//! hand outcomes over never wait.

mod collector_names;
mod config;
mod exporter;
mod sampler;
mod spans;
mod traces;

pub use config::TracesConfig;
pub use exporter::{ExportError, Exporter};
pub use sampler::Sampler;
pub use spans::{Origin, spans};
pub use traces::Traces;
