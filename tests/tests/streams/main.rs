//! Streams that go on after their replica broke off, on whole nodes.
#![expect(clippy::expect_used, reason = "a test's helper fails by panicking")]

mod cuts;
mod engines;
mod refused;
mod regions;
mod stream;
