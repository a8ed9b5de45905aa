//! Changes that other parts of a node may want to know at once.

use spillway_types::{NodeName, RegionName};

use crate::Reach;

/// A change; the present state can be read from the [`crate::GossipMachine`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum GossipEvent {
    /// Another node speaks for the own region.
    Speaker(NodeName),
    /// The reach of another region changed.
    Region {
        /// Region whose reach changed.
        region: RegionName,
        /// Reach before the change.
        from: Reach,
        /// Reach after it.
        to: Reach,
    },
    /// A datagram of a node of the own region arrived after silence.
    NodeHeard(NodeName),
    /// A node of the own region fell silent and lost its claims.
    NodeSilent(NodeName),
    /// The number of requests that this node may have at some replica changed. At most one such
    /// event waits.
    Claims,
}
