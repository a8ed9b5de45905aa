//! What a request costs in the data path, counted and not timed, so that machines agree: budgets that
//! no change exceeds unseen.
#![expect(clippy::expect_used, reason = "a test's helper fails by panicking")]

mod allocations;
mod http2;
mod instructions;
mod world;
