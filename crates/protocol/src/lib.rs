//! What clients and replicas say: endpoints, bodies, events and errors, without I/O.
//!
//! Everything here is a pure function or a small state machine over bytes that somebody else has
//! read. Bodies and events are never copied as a whole: what is learned of them are facts and
//! ranges, and what is changed of them is a list of slices.

mod body;
mod client_address;
mod continuation;
mod endpoint;
mod error;
#[cfg(any(test, fuzzing))]
pub mod fuzz;
pub mod grpc;
mod hash_by;
mod models;
mod orca;
mod prompt;
mod reply;
mod splice;
mod sse;
mod trace;

pub use body::{BodyError, BodyErrorKind, Facts, PromptKind, TextField, read_facts};
pub use client_address::TrustedProxies;
pub use continuation::{CompletionApi, Next, Terms, Thread, Unfit, UsageTelling, ask_throughout};
pub use endpoint::{Endpoint, Protocol, decode_name};
pub use error::{
    CODE_HEADER, ErrorKind, EventFlavour, GatewayError, RETRY_DELAY, RETRY_DELAY_MAX, SHED_REASON,
};
pub use hash_by::{HashBy, KeySources, RequestKey, UnknownHashBy, cookie};
pub use models::{model_card, model_list};
pub use orca::parse_orca;
pub use prompt::{PromptPiece, read_prompt};
pub use reply::{Usage, response_id_in, usage_in};
pub use splice::{Segments, json_string, replace_model, rewrite};
pub use sse::{EventOptions, EventRelay, Tally};
pub use trace::{
    REQUEST_ID, TRACEPARENT, TRACESTATE, TraceContext, new_request_id, valid_request_id,
};
