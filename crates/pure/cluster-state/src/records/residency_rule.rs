//! Residency rules: the places where requests may be served.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};
use spillway_types::{Country, RegionName, Residency};

/// Places where requests may be served: a region must be among `regions` and lie in one of
/// `countries`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ResidencyRule {
    /// Allowed regions; empty for all.
    pub regions: BTreeSet<RegionName>,
    /// Allowed countries of regions; empty for all, regions of unknown country included.
    pub countries: BTreeSet<Country>,
}

impl ResidencyRule {
    /// Returns true if every region may serve the requests.
    #[must_use]
    pub fn is_anywhere(&self) -> bool {
        self.regions.is_empty() && self.countries.is_empty()
    }

    /// Returns the rule in the form that the data path applies to requests.
    #[must_use]
    pub fn residency(&self) -> Residency {
        Residency::new(self.regions.iter().cloned(), self.countries.iter().copied())
    }
}
