//! What a request is predicted to take at each candidate: the terms, and whether it fits there.
//!
//! [`Weigher`] looks at a group once to learn what is usual in it, then weighs one candidate at a
//! time. The policy takes the least; an explanation shows them all.

mod cost;
mod fit;
mod request;
mod usual;
mod weigher;

pub use cost::Cost;
pub use fit::Fit;
pub(crate) use weigher::Weigher;

#[cfg(test)]
mod weigher_test;
