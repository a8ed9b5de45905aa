//! One request: read it, find its route, ask a replica, hand its reply over.

mod affinity;
mod attempt_observer;
mod cache_feedback;
mod charge;
mod continuation;
mod cost;
mod dispatch;
mod ending;
mod explain;
mod fallback;
mod forward;
#[cfg(any(test, fuzzing))]
pub(crate) mod fuzz;
mod grpc;
mod guest;
mod head;
mod headers;
mod hedge;
mod intake;
mod local;
mod methods;
mod opaque;
mod path;
mod prepare;
mod prompt;
mod queue;
mod rates;
mod record;
mod redirect;
mod response_cookies;
mod response_headers;
mod salting;
mod serve;
mod sight;
mod stored;
mod target;
mod tenant;

pub use explain::{
    Decision, ExplainRequest, ExplainedRegion, ExplainedReplica, Explanation, explain,
};
pub use guest::{GuestAnswer, GuestError, admits_guest, serve_guest, shed_state_of};

pub(crate) use attempt_observer::AttemptObserver;
pub(crate) use continuation::{
    ContinuationFound, ContinuationPosition, PendingContinuation, StreamContinuation, has_events,
};
pub(crate) use head::METHODS;
pub(crate) use headers::clean_trailers;
pub(crate) use intake::{DISCARD_TIME_MAX, DISCARDED_BYTES_MAX, refuse_oversize, too_slow};
pub(crate) use local::is_ready;
pub(crate) use record::RequestRecord;
pub(crate) use serve::serve;
