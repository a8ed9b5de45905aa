//! Speed of replicas, learned from their replies.
//!
//! A [`LatencyModel`] of one replica and model takes in every reply ([`ObservedLatency`]), streamed or
//! in one piece, and estimates the replica's [`spillway_types::Speed`]. Pure: time is
//! an argument, and the state is a few hundred bytes that can be saved and loaded.

mod decode;
mod model;
mod ratio;
mod regression;
mod saved;
mod seen;

pub use model::{Beside, LatencyModel, LearnedReply};
pub use saved::{LatencyModelV1, LatencyModelV2, UnsoundModel};
pub use seen::ObservedLatency;

#[cfg(test)]
mod model_test;
