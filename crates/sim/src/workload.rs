//! What clients ask: sessions of one request or more, each in its region.

mod chance;
mod chats;
mod documents;
mod hot;
mod kind;
mod system_prompts;
mod trace;

pub use kind::{UnknownWorkload, WorkloadKind};
pub use trace::{TraceError, TraceOptions, read_trace};

use crate::{Piece, Text, Time};

/// A client with one or several requests, each of which follows the reply to the one before.
#[derive(Clone, Debug, PartialEq)]
pub struct Session {
    /// When the first request comes.
    pub start: Time,
    /// The region that the client is nearest to.
    pub region: usize,
    /// What a route would hash by: requests of equal keys belong together.
    pub affinity: u64,
    /// The requests in their order; at least one.
    pub turns: Vec<Turn>,
}

/// One request of a session.
#[derive(Clone, Debug, PartialEq)]
pub struct Turn {
    /// Microseconds from the reply before it; none for the first.
    pub think_us: u64,
    /// What is asked.
    pub prompt: Text,
    /// What will be answered.
    pub reply: Piece,
}

/// How much is asked, and for how long.
#[derive(Clone, Debug, PartialEq)]
pub struct Demand {
    /// Requests a second that each region's clients make, on average.
    pub rates_per_s: Vec<f64>,
    /// Seconds during which sessions begin.
    pub seconds: f64,
    /// Chooses everything that chance decides.
    pub seed: u64,
}
