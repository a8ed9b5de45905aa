//! A name whose requests are divided.

use serde::{Deserialize, Serialize};
use spillway_types::{ArmName, ModelName, ModelVersion};

/// A name whose requests are divided among models.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Split {
    /// The parts. Their weights make 1,000.
    pub arms: Vec<Arm>,
}

/// One part of a split.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Arm {
    /// Its name, unique in the split.
    pub name: ArmName,
    /// The model that serves it.
    pub model: ModelName,
    /// Its version, if one is meant.
    pub version: Option<ModelVersion>,
    /// Its share, in thousandths.
    pub weight_permille: u16,
}
