//! Regions, which operators weight, drain and evacuate.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};
use spillway_types::RegionName;

use crate::limits::PERMILLE;

/// A region: nodes and replicas that are near each other.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Region {
    /// ISO 3166 code of two letters, for residency rules; may be empty.
    pub country: String,
    /// Share of spilled requests that the region takes: 1,000 is the usual one.
    pub weight_permille: u16,
    /// Operating state.
    pub state: RegionState,
    /// Price of serving here above that of the cheapest region, as milliseconds of time to first
    /// token.
    pub price_ms: u32,
    /// Round-trip times to other regions that hold until they are measured.
    pub rtt_hints_ms: BTreeMap<RegionName, u32>,
}

/// Operating state of a region.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RegionState {
    /// All requests are served.
    // Active => (Draining | Evacuating)
    #[default]
    Active,
    /// Requests of the region's own clients are served, no new ones from other regions.
    // Draining => (Active | Evacuating)
    Draining,
    /// No requests are served: those of the region's own clients go to other regions, and its nodes
    /// stop voting. The region may be removed.
    // Evacuating => (Active | Draining)
    Evacuating,
}

impl Default for Region {
    fn default() -> Self {
        Self {
            country: String::new(),
            weight_permille: PERMILLE,
            state: RegionState::Active,
            price_ms: 0,
            rtt_hints_ms: BTreeMap::new(),
        }
    }
}

impl fmt::Display for RegionState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Active => "active",
            Self::Draining => "draining",
            Self::Evacuating => "evacuating",
        })
    }
}
