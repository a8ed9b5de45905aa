//! `spillway run` as a process that is told to stop: what it says, what it loses, how it exits.
#![expect(clippy::unwrap_used, reason = "a test's helper fails by panicking")]

mod alone;
mod caller;
mod operators;
mod process;
mod rolling;
mod sharing;
mod signals;
