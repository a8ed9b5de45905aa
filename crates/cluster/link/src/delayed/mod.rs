//! Simulated network on one machine, far away, slow, lossy or cut: for tests, demos and benchmarks.
//!
//! The simulation sits between quinn and the UDP socket and holds back the packets that this node
//! sends, so the protocols above are the real ones. Each node delays only what it sends, so the two
//! directions of a path can differ.

mod path;
mod queue;
mod socket;

#[cfg(test)]
mod delayed_test;

pub use path::{Path, PathCounts, Paths};
pub(crate) use socket::wrap;
