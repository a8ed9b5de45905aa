//! Whole nodes that agree on something: orders of operators take effect everywhere, survive restarts,
//! and nobody's requests wait for any of it.
#![expect(clippy::expect_used, clippy::panic, reason = "a test's helper fails by panicking")]

mod orders;
mod world;
