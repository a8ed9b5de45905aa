//! What a request costs in the data path, counted and not timed, so that it is the same on every
//! machine: budgets that no change exceeds unseen.
#![expect(clippy::expect_used, reason = "a test's helper fails by panicking")]

mod allocations;
mod instructions;
mod world;
