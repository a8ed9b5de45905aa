//! Leases of replicas.

use serde::{Deserialize, Serialize};

/// Lease of a replica: the time for which its registration holds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lease {
    /// Epoch of the registration.
    pub epoch: u64,
    /// End of the lease by the region's clock, which is no wall clock: see
    /// [`crate::State::region_clock_ms`].
    pub ends_ms: u64,
}

/// Source of a replica's registration.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LeaseSource {
    /// The config file of the replica's region. The replica stays until it is removed.
    Config,
    /// The replica itself. It is taken out when its lease ends, so it renews the lease again and
    /// again, best every third of the length.
    Lease {
        /// Length of the lease from each registration or renewal, in milliseconds.
        length_ms: u64,
    },
}
