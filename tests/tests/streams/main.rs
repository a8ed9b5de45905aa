//! Streams that go on after their replica broke off, on whole nodes.
#![expect(clippy::expect_used, reason = "a test's helper fails by panicking")]

mod cuts;
mod drains;
mod engines;
mod judged;
mod refused;
mod regions;
mod stream;
mod usage;
