//! Whole clusters on loopback: nodes of several regions that serve for each other.
#![expect(clippy::expect_used, reason = "a test's helper fails by panicking")]

mod failure;
mod forwarding;
mod grpc;
#[path = "../node/grpc_calls.rs"]
#[expect(dead_code, reason = "shared with the tests of single nodes, which use all of it")]
mod grpc_calls;
mod metrics;
mod reach;
mod siblings;
mod spilling;
