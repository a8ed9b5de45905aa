//! Place that a request holds at the replica or region that serves it.

use std::sync::Arc;

use spillway_types::{NodeName, RegionName};

use crate::regions::RegionCount;
use crate::replica::{Lease, Replica};

/// Place of a request where it is served; released when dropped.
#[derive(Debug)]
pub(crate) enum Place {
    /// A place at a replica of the own region.
    Replica(Lease),
    /// A place at a node of another region, which chose the replica.
    Region(RegionPlace),
}

/// Place of a request in another region.
#[derive(Debug)]
pub(crate) struct RegionPlace {
    pub(crate) region: RegionName,
    /// Node that took the request.
    pub(crate) node: NodeName,
    pub(crate) _count: RegionCount,
}

impl Place {
    /// Returns the replica if it is one of the own region.
    pub(crate) fn replica(&self) -> Option<&Arc<Replica>> {
        match self {
            Self::Replica(lease) => Some(lease.replica()),
            Self::Region(_) => None,
        }
    }
}
