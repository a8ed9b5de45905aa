//! The commands about a cluster, as people type them, against a real node's admin API.
#![expect(clippy::unwrap_used, reason = "a test's helper fails by panicking")]

mod backups;
mod operators;
mod prompts;
mod records;
mod world;
