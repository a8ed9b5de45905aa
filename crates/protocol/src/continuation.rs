//! A stream of a completion that goes on after its replica broke off.
//!
//! [`Thread`] is the stream as its client sees it, whoever serves it: it reads what passes, and makes
//! the events of a second replica look like those of the first. [`Terms`] is what the request says
//! about it: whether another replica can take up the thread exactly, and how it is to be asked.

mod chunk;
mod rewriter;
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
