//! Driver of requests: carries out what `spillway-journey` decides, and relays replies.
//!
//! One request reads one immutable [`View`](spillway_view::View) and leaves one outcome in
//! a bounded queue. It waits for its client, its replica and its turn; `spillway-journey` decides
//! what happens to it next.

#[cfg(any(test, fuzzing))]
pub mod fuzz;
mod relay;
mod request;
mod worker;
mod worker_service;

pub use request::{
    Decision, ExplainRequest, ExplainedRegion, ExplainedReplica, Explanation, GuestAnswer,
    GuestError, admits_guest, explain, serve_guest, shed_state_of,
};
pub use worker::Worker;
