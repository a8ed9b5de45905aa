//! Helpers that tests of several crates share: certificates, links between nodes, an HTTP client, waiting.
//!
//! Only dev-dependencies may name this crate; `cargo xtask tidy` checks it. The crate depends on
//! `spillway-link`, so unit tests inside `spillway-link` itself may use only the waiting functions:
//! to the compiler, the types here belong to another copy of that crate.
#![expect(clippy::expect_used, clippy::panic, reason = "a helper of tests fails by panicking")]

mod certificates;
mod client;
mod dns_server;
mod link;
mod stopwatch;
mod wait;

pub use certificates::{CLUSTER, Certificates, identity};
pub use client::{Client, ClientBody, Reply, chat, full, get, message, post, streamed};
pub use dns_server::{DnsServer, Mood};
pub use link::{RefuseAll, as_peer, introduce};
pub use stopwatch::Stopwatch;
pub use wait::{
    PATIENCE, SLOWDOWN, eventually, eventually_blocking, eventually_within, retried, spawn, within,
};
