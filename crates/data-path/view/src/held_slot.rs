//! Slot that a request holds at the replica or region that serves it.

use std::sync::Arc;

use spillway_journey::{ReplySource, StreamTarget};
use spillway_types::{NodeName, RegionName, TriedTarget};

use crate::regions::RegionCount;
use crate::replica::{Lease, Replica};
use crate::stored_responses::Home;

/// Slot of a request at its target, the replica or region that serves it; released when dropped.
#[derive(Debug)]
pub enum HeldSlot {
    /// A slot at a replica of the own region.
    Replica(Lease),
    /// A slot at a node of another region, which chose the replica.
    Region(RegionSlot),
}

/// Slot of a request in another region.
#[derive(Debug)]
pub struct RegionSlot {
    /// Region that the request was forwarded to.
    pub region: RegionName,
    /// Node that took the request.
    pub node: NodeName,
    /// Count of requests there; released when dropped.
    pub _count: RegionCount,
}

impl HeldSlot {
    /// Returns the replica if it is one of the own region.
    pub fn replica(&self) -> Option<&Arc<Replica>> {
        match self {
            Self::Replica(lease) => Some(lease.replica()),
            Self::Region(_) => None,
        }
    }

    /// Returns the kind of the target, for the state machine of its reply.
    pub fn source(&self) -> ReplySource {
        match self {
            Self::Replica(_) => ReplySource::Replica,
            Self::Region(_) => ReplySource::Region,
        }
    }

    /// Returns the server of a response that came from this target.
    pub fn home(&self) -> Home {
        match self {
            Self::Replica(lease) => Home::Replica(lease.replica().spec().name.clone()),
            Self::Region(target) => Home::Elsewhere {
                region: target.region.clone(),
                node: Some(target.node.clone()),
                replica: None,
            },
        }
    }

    /// Returns the name of the target, as the record of a request keeps it.
    #[must_use]
    pub fn tried(&self) -> TriedTarget {
        match self {
            Self::Replica(lease) => TriedTarget::Replica(lease.replica().spec().name.clone()),
            Self::Region(target) => TriedTarget::Region(target.region.clone()),
        }
    }

    /// Returns the name of the target, as the continuation of its stream knows it.
    pub fn of_stream(&self) -> StreamTarget {
        match self {
            Self::Replica(lease) => StreamTarget::Replica(lease.replica().spec().name.clone()),
            Self::Region(target) => StreamTarget::Region(target.region.clone()),
        }
    }
}
