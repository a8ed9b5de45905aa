//! Facts of replies: one incremental reader for each form, which parses no more than the members that
//! have facts.
//!
//! [`WholeReader`] reads a reply of one document, cut into pieces anywhere. The events of a stream are
//! read by the relay of events. Facts are read only where the API defines them, so that what a reply
//! repeats of its request is never taken for its own.

mod api;
mod document;
mod engine_trouble;
pub(crate) mod event_kind;
mod event_lines;
mod event_reader;
mod facts;
mod finish;
mod found;
mod missing_model;
mod plain_event;
mod reply_error;
mod schema;
mod text;
mod usage;
mod verdict;
mod whole_reader;

pub use api::ReplyApi;
pub use engine_trouble::{EngineTrouble, engine_trouble, engine_trouble_in};
pub use facts::ReplyFacts;
pub use finish::Finish;
pub use missing_model::{lacks_model, lacks_model_by};
pub use reply_error::ReplyError;
pub use usage::Usage;
pub use verdict::ReplyVerdict;
pub use whole_reader::WholeReader;

#[cfg(test)]
pub(crate) use document::read_error;
pub(crate) use document::read_usage;
pub(crate) use event_reader::EventReader;

#[cfg(test)]
mod document_test;
#[cfg(test)]
mod engine_replies_test;
#[cfg(test)]
mod event_reader_test;
#[cfg(test)]
mod whole_reader_test;
