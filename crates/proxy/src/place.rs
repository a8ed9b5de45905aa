//! Who serves a request, and the place that it holds there.

use std::sync::Arc;

use spillway_types::{NodeName, RegionName};

use crate::regions::RegionCount;
use crate::replica::{Lease, Replica};

/// A request's place where it is served; gives it back when dropped.
#[derive(Debug)]
pub(crate) enum Place {
    /// At a replica of the own region.
    Replica(Lease),
    /// At a node of another region, which chose the replica.
    Region(RegionPlace),
}

/// A request's place in another region.
#[derive(Debug)]
pub(crate) struct RegionPlace {
    pub(crate) region: RegionName,
    /// The node that took it.
    pub(crate) node: NodeName,
    pub(crate) _count: RegionCount,
}

impl Place {
    /// The replica, if it is one of the own region.
    pub(crate) fn replica(&self) -> Option<&Arc<Replica>> {
        match self {
            Self::Replica(lease) => Some(lease.replica()),
            Self::Region(_) => None,
        }
    }
}
