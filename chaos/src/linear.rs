//! Linearizability checker: decides if the answers that concurrent clients saw could have come from
//! one operation after another.
//!
//! A [`Recorder`] notes the start, the end and the answer of each operation. [`check`] searches for
//! an order that explains the answers of each key, with the algorithm of Wing and Gong and the
//! memory of visited states that Lowe added. Keys are checked one by one: a history is linearizable
//! exactly if the history of each key is.

mod bits;
mod check;
mod explain;
mod history;
mod model;
mod recorder;
mod register;
mod search;

pub use check::{SearchLimits, SearchVerdict, check};
pub use explain::Counterexample;
pub use history::{Operation, OperationEnd};
pub use model::Model;
pub use recorder::{OPERATIONS_MAX, Pending, Recorder};
pub use register::{Register, RegisterInput, RegisterOutput, RegisterState, Version};

#[cfg(test)]
mod random_test;
#[cfg(test)]
mod test_brute;
