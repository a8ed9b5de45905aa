//! Judges whether what concurrent clients saw could have happened one operation after another.
//!
//! A [`Recorder`] notes when each operation was sent and what was answered when. [`check`] looks
//! for an order that explains the answers of each key, after Wing and Gong, with the memory of
//! visited states that Lowe added. Keys are judged apart: a history is linearizable exactly when
//! that of each key is.

mod bits;
mod check;
mod explain;
mod history;
mod model;
mod recorder;
mod register;
mod search;

pub use check::{Limits, Verdict, check};
pub use explain::Counterexample;
pub use history::{End, Operation};
pub use model::Model;
pub use recorder::{OPERATIONS_MAX, Pending, Recorder};
pub use register::{Register, RegisterInput, RegisterOutput, RegisterState, Version};

#[cfg(test)]
mod brute;
#[cfg(test)]
mod random_test;
