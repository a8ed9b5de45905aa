//! One request: read it, find its route, ask a replica, hand its reply over.

mod admission;
mod asked;
mod attempt;
mod attempt_observer;
mod cache_feedback;
mod charge;
mod continuation;
mod deliver;
mod dispatch;
mod ending;
mod errors;
mod exchange;
mod explain;
mod forward;
#[cfg(any(test, fuzzing))]
pub(crate) mod fuzz;
mod grpc_reply;
mod guest;
mod hedge;
mod overflow;
mod queue;
mod record;
mod redirect;
mod refusal;
mod refused_usage;
mod response_cookies;
mod response_headers;
mod sending;
mod serve;
mod sight;
mod tenant;
mod whole_reply;

pub use explain::{
    Decision, ExplainRequest, ExplainedRegion, ExplainedReplica, Explanation, explain,
};
pub use guest::{GuestAnswer, GuestError, admits_guest, serve_guest, shed_state_of};

pub(crate) use attempt_observer::AttemptObserver;
pub(crate) use continuation::{
    ContinuationFound, ContinuationPosition, PendingContinuation, StreamContinuation, has_events,
};
pub(crate) use deliver::is_known_engine;
pub(crate) use errors::engines_died;
pub(crate) use grpc_reply::code_in;
pub(crate) use record::RequestRecord;
pub(crate) use serve::{note_large_head, serve};
