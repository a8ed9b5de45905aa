//! Place that a request holds at the replica or region that serves it.

use std::sync::Arc;

use spillway_journey::{ReplySource, StreamPlace};
use spillway_types::{NodeName, RegionName, TriedPlace};

use crate::regions::RegionCount;
use crate::replica::{Lease, Replica};
use crate::stored_responses::Home;

/// Place of a request where it is served; released when dropped.
#[derive(Debug)]
pub enum Place {
    /// A place at a replica of the own region.
    Replica(Lease),
    /// A place at a node of another region, which chose the replica.
    Region(RegionPlace),
}

/// Place of a request in another region.
#[derive(Debug)]
pub struct RegionPlace {
    /// Region that the request was forwarded to.
    pub region: RegionName,
    /// Node that took the request.
    pub node: NodeName,
    /// Count of requests there; released when dropped.
    pub _count: RegionCount,
}

impl Place {
    /// Returns the replica if it is one of the own region.
    pub fn replica(&self) -> Option<&Arc<Replica>> {
        match self {
            Self::Replica(lease) => Some(lease.replica()),
            Self::Region(_) => None,
        }
    }

    /// Returns the kind of the place, for the state machine of its reply.
    pub fn source(&self) -> ReplySource {
        match self {
            Self::Replica(_) => ReplySource::Replica,
            Self::Region(_) => ReplySource::Region,
        }
    }

    /// Returns the server of a response that came from this place.
    pub fn home(&self) -> Home {
        match self {
            Self::Replica(lease) => Home::Replica(lease.replica().spec().name.clone()),
            Self::Region(place) => Home::Elsewhere {
                region: place.region.clone(),
                node: Some(place.node.clone()),
                replica: None,
            },
        }
    }

    /// Returns the name of the place, as the record of a request keeps it.
    #[must_use]
    pub fn tried(&self) -> TriedPlace {
        match self {
            Self::Replica(lease) => TriedPlace::Replica(lease.replica().spec().name.clone()),
            Self::Region(place) => TriedPlace::Region(place.region.clone()),
        }
    }

    /// Returns the name of the place, as the continuation of its stream knows it.
    pub fn of_stream(&self) -> StreamPlace {
        match self {
            Self::Replica(lease) => StreamPlace::Replica(lease.replica().spec().name.clone()),
            Self::Region(place) => StreamPlace::Region(place.region.clone()),
        }
    }
}
