//! Workloads: sessions of one or more requests, each session in its region.

mod agents;
mod azure;
mod chance;
mod chats;
mod course;
pub(crate) mod crowd;
mod documents;
mod hot;
mod kind;
mod system_prompts;
mod tasks;
mod trace;
mod trees;

pub use azure::read_azure_trace;
pub(crate) use course::Course;
pub use kind::WorkloadKind;
pub(crate) use tasks::{Task, sessions as task_sessions};
pub use trace::{TraceError, TraceOptions, read_trace};

use crate::{Piece, Text, Time};

/// Client with one or several requests, the later of which follow replies to earlier ones.
#[derive(Clone, Debug, PartialEq)]
pub struct Session {
    /// Moment of the first request.
    pub start: Time,
    /// Region that the client is nearest to.
    pub region: usize,
    /// Key that a route would hash: requests with equal keys belong together.
    pub affinity: u64,
    /// Requests, each after the one that it follows; at least one.
    pub turns: Vec<Turn>,
}

/// Request of a session.
#[derive(Clone, Debug, PartialEq)]
pub struct Turn {
    /// Number of the turn whose reply, or failure, the request follows; several may follow one.
    /// `None`: it follows all turns before it, as the first of a session, which follows none, and
    /// the first of a new task of the client.
    pub after: Option<usize>,
    /// Microseconds since the turn that the request follows; 0 for the first request.
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
