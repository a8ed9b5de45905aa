//! Reports of nodes about their disks and states.

use serde::{Deserialize, Serialize};

/// Digest of a state, with the index of the last entry in it.
pub(crate) type StateDigest = (u64, u128);

/// Report of a process about its disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct DiskCount {
    /// Number that the process drew when it started.
    pub(crate) process: u64,
    /// Commits of the disk when the process started …
    pub(crate) began: u64,
    /// … and by now.
    pub(crate) serial: u64,
    /// The count of an earlier process which this one has caught up with; 0 for none.
    pub(crate) cleared: u64,
}
