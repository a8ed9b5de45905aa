//! Nodes of several regions divide limits over a network that loses, delays and cuts, with clocks
//! that differ. Whatever happens, no window of any length of a limit holds more than the limit.
#![expect(clippy::unwrap_used, reason = "a test's helper fails by panicking")]
#![expect(clippy::print_stdout, reason = "the figures of docs/measured/limits.md")]

mod checker;
mod node;
mod state;
mod trials;
mod world;
