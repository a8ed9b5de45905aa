//! Models of other regions, which the keeper receives from gossip.

use std::collections::BTreeSet;

use spillway_types::ModelName;

/// Models of other regions.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct OtherRegionModels {
    /// Models that some replica there takes requests for.
    pub(crate) served: BTreeSet<ModelName>,
    /// Models that are configured there, as far as this node knows.
    pub(crate) known: BTreeSet<ModelName>,
}
