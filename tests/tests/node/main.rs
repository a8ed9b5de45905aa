//! Whole nodes on loopback: each module is a topic of the specification.
#![expect(clippy::expect_used, reason = "a test's helper fails by panicking")]

mod accounting;
mod addresses;
mod admin;
mod affinity;
mod cancel;
mod certificates;
mod clients;
mod concurrency;
mod config;
mod discovery;
mod dns;
mod doors;
mod down;
mod drain;
mod engine_fields;
mod fallbacks;
#[expect(dead_code, reason = "tests of regions use more of it")]
#[path = "../regions/gate.rs"]
mod gate;
mod geo;
mod grpc;
mod grpc_calls;
mod grpc_ends;
mod grpc_lines;
mod grpc_streams;
mod headers;
mod health;
mod hedging;
mod http2;
mod identity;
mod isolation;
mod life;
mod limits;
mod load;
mod metrics;
mod names;
mod prefix;
mod promises;
mod protocols;
mod reload;
mod responses;
mod rests;
mod retries;
mod rewriting;
mod samples;
mod serving;
mod sessions;
mod shedding;
mod slow_readers;
mod splits;
mod tenant_share;
mod timeouts;
mod tls;
mod upstream;
mod versions;
