//! What others may want to know at once.

use spillway_types::{NodeName, RegionName};

use crate::Reach;

/// Something changed; what there is now can be read from the [`crate::Pulse`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// Another node speaks for the own region.
    Speaker(NodeName),
    /// How another region can be reached changed.
    Region {
        /// Which.
        region: RegionName,
        /// How it was.
        from: Reach,
        /// How it is.
        to: Reach,
    },
    /// A node of the own region spoke up.
    NodeHeard(NodeName),
    /// A node of the own region fell silent and lost its claims.
    NodeSilent(NodeName),
    /// What this node may use of some replica changed. Waits once at most.
    Claims,
}
