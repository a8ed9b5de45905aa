//! Nodes and replicas that are near each other.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};
use spillway_types::RegionName;

use crate::limits::PERMILLE;

/// Nodes and replicas that are near each other.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Region {
    /// ISO 3166 code of two letters, for rules about where data may go; may be empty.
    pub country: String,
    /// How much of the spilled work it takes, in thousandths of the usual.
    pub weight_permille: u16,
    /// What it may be given.
    pub state: RegionState,
    /// What serving here costs beyond the cheapest region, as milliseconds of time to first token.
    pub price_ms: u32,
    /// Round trips to other regions to begin with, until they are measured.
    pub rtt_hints_ms: BTreeMap<RegionName, u32>,
}

/// What a region may be given.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RegionState {
    /// Everything.
    // Active => (Draining | Evacuating)
    #[default]
    Active,
    /// No new work from elsewhere; its own clients' requests are served.
    // Draining => (Active | Evacuating)
    Draining,
    /// Nothing: its own clients' requests go elsewhere, its nodes stop voting. It may be removed.
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
