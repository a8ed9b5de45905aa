//! Predicted cost of a request at each candidate: its terms, and room for the request.
//!
//! [`Weigher`] looks at a group once to learn the means, then weighs one candidate at a time. The
//! policy takes the cheapest; an explanation shows them all.

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
