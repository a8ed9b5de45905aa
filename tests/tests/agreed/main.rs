//! Whole nodes that agree on cluster state: orders of operators take effect everywhere and survive
//! restarts, and no request waits for any of it.
#![expect(clippy::expect_used, clippy::panic, reason = "a test's helper fails by panicking")]

mod age;
mod believed;
mod disaster;
mod join;
mod knowledge;
mod leased;
mod limits;
mod orders;
mod partition;
mod residency;
mod rollouts;
mod routes;
mod splits;
mod thief;
mod usage;
mod voters;
mod weights;
mod world;
