//! Continuation of a completion's stream on another replica after the first one failed.
//!
//! [`Thread`] is the stream as its client sees it, over all replicas: it reads the passing events,
//! and makes the events of a second replica look like those of the first. [`Terms`] holds what a
//! request says about that: if another replica can continue the stream exactly, and how to ask for
//! it.

pub(crate) mod chunk;
pub(crate) mod rewriter;
mod terms;
mod thread;
mod unfit;

pub use terms::{CompletionApi, Terms, UsageTelling, ask_throughout};
pub use thread::{Next, Thread};
pub use unfit::Unfit;

#[cfg(test)]
mod terms_test;
#[cfg(test)]
mod thread_test;
