//! Protocols of clients and replicas, without I/O: endpoints, bodies, events and errors.
//!
//! Everything here is a pure function or a small state machine over bytes that the caller has read.
//! Bodies and events are never copied as a whole: facts about them are values and ranges, and
//! changes are lists of slices.

mod body;
mod cache_mask;
mod client_address;
mod continuation;
mod echo;
mod endpoint;
mod engine_fields;
mod engine_paths;
mod error;
mod form;
#[cfg(any(test, fuzzing))]
pub mod fuzz;
pub mod grpc;
mod hash_by;
mod media_type;
mod models;
mod near;
mod orca;
mod plain_path;
mod prompt;
mod reference;
mod reply;
mod reply_text;
mod splice;
mod sse;
mod trace;
mod v2;
mod window;

pub use body::{BodyError, BodyErrorKind, Facts, PromptKind, PromptLoad, TextField, read_facts};
pub use cache_mask::CacheMask;
pub use client_address::TrustedProxies;
pub use continuation::{CompletionApi, Next, Terms, Thread, Unfit, UsageTelling, ask_throughout};
pub use echo::Echo;
pub use endpoint::{Endpoint, Protocol, decode_name, is_messages};
pub use engine_fields::EngineFields;
pub use engine_paths::MissingRoute;
pub use error::{
    CODE_HEADER, ErrorKind, EventFlavour, FailureCause, GatewayError, RETRY_DELAY, RETRY_DELAY_MAX,
    RetryAfterUse, SHED_REASON, code_meaning, codes, error_reference, known_code,
};
pub use form::{Form, read_form};
pub use hash_by::{HashBy, KeySources, RequestKey, UnknownHashByError, cookie};
pub use media_type::{has_media_type, is_encoded, media_type};
pub use models::{ModelCard, model_card, model_list};
pub use near::nearest_path;
pub use orca::parse_orca;
pub use plain_path::{is_confined, lies_below};
pub use prompt::{PromptFacts, PromptPiece, blob_tokens, read_prompt};
pub use reference::own_target;
pub use reply::{
    EngineTrouble, Finish, ReplyApi, ReplyError, ReplyFacts, ReplyVerdict, Usage, WholeReader,
    engine_trouble, engine_trouble_in, lacks_model, lacks_model_by,
};
pub use reply_text::{ReplyReader, ReplyShape};
pub use splice::{
    BodyDraft, Changes, SaltField, Segments, UsageWish, change, json_string, replace_model, rewrite,
};
pub use sse::{EventFault, EventOptions, EventRelay, JudgedStream, Tally};
pub use trace::{
    REQUEST_ID, TRACEPARENT, TRACESTATE, TraceContext, new_request_id, valid_request_id,
};
pub use v2::{Expanded, V2Coding, V2Facts, V2Look, V2Watch, read_v2};
