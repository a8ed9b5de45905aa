//! A network that is far away, slow, lossy or cut, on one machine: for tests, demos, benchmarks.
//!
//! It sits between quinn and the UDP socket and holds back what this node sends, so the protocols
//! above are the real ones. Each node delays its own sending: both directions of a path can differ.

mod path;
mod queue;
mod socket;

#[cfg(test)]
mod delayed_test;

pub use path::{Path, PathCounts, Paths};
pub(crate) use socket::wrap;
