//! Access control: keys and what they allow, over whole nodes on loopback.
#![expect(clippy::expect_used, reason = "a test's helper fails by panicking")]

mod agreed;
mod configs;
mod grpc;
#[path = "../node/grpc_calls.rs"]
#[expect(dead_code, reason = "shared with the tests of single nodes, which use all of it")]
mod grpc_calls;
mod keys;
mod misled;
mod models;
mod proxies;
mod regions;
mod reload;
mod responses;
mod tenants;
