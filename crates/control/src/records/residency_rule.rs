//! Where requests may be served.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};
use spillway_types::{Country, RegionName, Residency};

/// Where requests may be served: by regions that are among these, and lie in one of these countries.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ResidencyRule {
    /// Regions that may; empty for all.
    pub regions: BTreeSet<RegionName>,
    /// Countries that they have to be in; empty for all, regions of unknown country included.
    pub countries: BTreeSet<Country>,
}

impl ResidencyRule {
    /// Whether any region may serve, wherever it is.
    #[must_use]
    pub fn is_anywhere(&self) -> bool {
        self.regions.is_empty() && self.countries.is_empty()
    }

    /// The same as what requests are looked at by.
    #[must_use]
    pub fn residency(&self) -> Residency {
        Residency::new(self.regions.iter().cloned(), self.countries.iter().copied())
    }
}
