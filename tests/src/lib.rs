//! Parts for tests of whole nodes: nodes, replicas under a script, clients, metrics.
//!
//! Everything runs in one process on loopback. A helper that fails panics, which fails the test.
//! Every wait has a deadline far above the time that a loaded machine needs.
#![expect(clippy::expect_used, clippy::panic, reason = "a helper of tests fails by panicking")]

mod call_server;
mod cluster;
mod fixtures;
mod page;
mod records;
mod scripted;
mod setup;
mod strict;
mod wire;

pub use call_server::{Call, CallServer, CallSink};
pub use cluster::{Cluster, is_open, knows};
pub use fixtures::{OK, RAW_ROUTE, both, noise, resident_bytes};
pub use page::Page;
pub use records::{check_record, last_record, newest_record, records};
pub use scripted::{Recorded, Scripted, Serving};
pub use setup::{Setup, emulator, slow_emulator};
pub use spillway_testkit::{Client, ClientBody, Reply, chat, full, get, message, post, streamed};
pub use spillway_testkit::{PATIENCE, SLOWDOWN, Stopwatch, eventually, retried, spawn, within};
pub use strict::StrictServer;
pub use wire::{Closed, Message, Wire};
