//! Whole nodes on loopback: each module is a topic of the specification.
#![expect(clippy::expect_used, reason = "a test's helper fails by panicking")]

mod accounting;
mod addresses;
mod affinity;
mod cancel;
mod certificates;
mod config;
mod drain;
mod headers;
mod http2;
mod limits;
mod metrics;
mod protocols;
mod reload;
mod responses;
mod retries;
mod rewriting;
mod serving;
mod timeouts;
mod tls;
mod upstream;
