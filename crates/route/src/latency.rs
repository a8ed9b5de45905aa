//! What is learned of a replica's speed from its replies.
//!
//! One [`LatencyModel`] a replica and model takes in every reply ([`Seen`]) and says what it makes of
//! them ([`spillway_types::Speed`]). [`PredictionError`] keeps how far predictions were off. Pure: time
//! is an argument, and what is kept is a few hundred bytes that can be saved and loaded.

mod model;
mod prediction_error;
mod ratio;
mod regression;
mod seen;

pub use model::LatencyModel;
pub use prediction_error::PredictionError;
pub use seen::Seen;

#[cfg(test)]
mod model_test;
