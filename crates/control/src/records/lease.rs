//! How long a replica stays registered.

use serde::{Deserialize, Serialize};

/// Until when a replica stays registered by itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lease {
    /// Of which registration.
    pub epoch: u64,
    /// By the region's clock, which is no wall clock: see [`crate::State::region_clock_ms`].
    pub ends_ms: u64,
}

/// How a replica is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LeaseSource {
    /// Its region's config file has it: it stays until it is removed.
    Config,
    /// It registered by itself and is taken out unless it says for how long it stays, again and
    /// again; every third of this is a good time.
    Lease {
        /// How long a registration or renewal holds.
        length_ms: u64,
    },
}
