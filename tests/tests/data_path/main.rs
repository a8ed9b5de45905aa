//! Cost of a request in the data path, counted rather than timed so that all machines agree.
//! Budgets make every increase visible.
#![expect(clippy::expect_used, reason = "a test's helper fails by panicking")]

mod allocations;
mod http2;
mod instructions;
mod world;
