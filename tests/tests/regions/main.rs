//! Whole clusters on loopback: nodes of several regions that serve for each other.
#![expect(clippy::expect_used, clippy::panic, reason = "a test's helper fails by panicking")]

mod circuit_breaker;
mod deadlines;
mod dns;
mod failure;
mod failure_records;
mod forwarding;
mod forwards;
mod gate;
mod grpc;
#[path = "../node/grpc_calls.rs"]
#[expect(dead_code, reason = "shared with the tests of single nodes, which use all of it")]
mod grpc_calls;
mod guests;
mod header_sessions;
mod homes;
mod hops;
mod knowledge;
mod known;
mod lost;
mod metrics;
mod overload;
mod reach;
mod residency;
mod rotation;
mod siblings;
mod spilling;
mod steering;
mod usage;
mod waiting;
