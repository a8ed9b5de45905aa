//! Faults of a world: what breaks, when, and for how long.

use serde::Deserialize;

use crate::Time;

/// Fault that lasts for some time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Fault {
    /// Seconds from the beginning of the run until the fault begins.
    pub begin_s: f64,
    /// Seconds from the beginning of the run until the fault ends.
    pub end_s: f64,
    /// Kind of the fault.
    pub kind: FaultKind,
}

/// Kinds of faults. Regions and replicas are numbered as in the world.
///
/// Networks break between regions whose nodes speak to each other: with nodes in one central region
/// only, cuts do nothing.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FaultKind {
    /// Nothing gets from one region to the other, nor back.
    Cut {
        /// One of the regions.
        a: usize,
        /// The other region.
        b: usize,
    },
    /// No packet gets from one region to the other; the way back works.
    OneWay {
        /// Region whose packets are lost.
        from: usize,
        /// Region that they don't reach.
        to: usize,
    },
    /// The path between two regions takes longer, in both directions. Nodes measure it.
    Slow {
        /// One of the regions.
        a: usize,
        /// The other region.
        b: usize,
        /// Factor of the path's round-trip time.
        factor: f64,
    },
    /// A replica is gone: connections to it are refused, and its cache is lost.
    ReplicaLost {
        /// Number of the replica.
        replica: usize,
    },
    /// The replicas and nodes of a region are gone. Nodes that come back remember their state.
    RegionLost {
        /// Number of the region.
        region: usize,
        /// Seconds after which the region's clients ask the nodes of the nearest other region, until
        /// the fault ends.
        moved_after_s: f64,
    },
    /// A replica reports that it has nothing to do.
    Lying {
        /// Number of the replica.
        replica: usize,
    },
    /// A replica is being drained: it ends what it has, and gets no new requests.
    ReplicaDrained {
        /// Number of the replica.
        replica: usize,
    },
    /// A region is being drained: its requests go to other regions that have room.
    RegionDrained {
        /// Number of the region.
        region: usize,
    },
    /// Requests of a session kill the engine that generates their third token.
    Poison {
        /// Number of the session.
        session: usize,
    },
}

impl Fault {
    /// Returns the moment at which the fault begins.
    pub(super) fn begin(&self) -> Time {
        Time::from_s(self.begin_s)
    }

    /// Returns the moment at which the fault ends.
    pub(super) fn end(&self) -> Time {
        Time::from_s(self.end_s)
    }
}

impl FaultKind {
    /// Returns true if nothing gets from one region to the other.
    pub(super) fn cuts(self, from: usize, to: usize) -> bool {
        match self {
            Self::Cut { a, b } => [(a, b), (b, a)].contains(&(from, to)),
            Self::OneWay { from: a, to: b } => (a, b) == (from, to),
            Self::RegionLost { region, .. } => region == from || region == to,
            Self::Slow { .. }
            | Self::ReplicaLost { .. }
            | Self::Lying { .. }
            | Self::ReplicaDrained { .. }
            | Self::RegionDrained { .. }
            | Self::Poison { .. } => false,
        }
    }

    /// Returns the factor of the round-trip time between two regions.
    pub(super) fn slowness(self, from: usize, to: usize) -> f64 {
        match self {
            Self::Slow { a, b, factor } if [(a, b), (b, a)].contains(&(from, to)) => factor,
            _ => 1.0,
        }
    }
}
