//! Workloads: sessions of one or more requests, each session in its region.

mod chance;
mod chats;
mod documents;
mod hot;
mod kind;
mod system_prompts;
mod trace;

pub use kind::{UnknownWorkloadError, WorkloadKind};
pub use trace::{TraceError, TraceOptions, read_trace};

use crate::{Piece, Text, Time};

/// Client with one or several requests, each of which follows the reply to the one before.
#[derive(Clone, Debug, PartialEq)]
pub struct Session {
    /// Moment of the first request.
    pub start: Time,
    /// Region that the client is nearest to.
    pub region: usize,
    /// Key that a route would hash: requests with equal keys belong together.
    pub affinity: u64,
    /// Requests in their order; at least one.
    pub turns: Vec<Turn>,
}

/// Request of a session.
#[derive(Clone, Debug, PartialEq)]
pub struct Turn {
    /// Microseconds since the reply before; 0 for the first request.
    pub think_us: u64,
    /// Prompt of the request.
    pub prompt: Text,
    /// Reply that will be generated.
    pub reply: Piece,
}

/// Rate and duration of the requests.
#[derive(Clone, Debug, PartialEq)]
pub struct Demand {
    /// Mean requests a second of each region's clients.
    pub rates_per_s: Vec<f64>,
    /// Seconds during which sessions begin.
    pub seconds: f64,
    /// Seed of all random choices.
    pub seed: u64,
}
