//! Splits: names whose requests are divided among models.

use serde::{Deserialize, Serialize};
use spillway_types::{ArmName, ModelName, ModelVersion};

/// A name whose requests are divided among models.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Split {
    /// Arms of the split. Their weights make 1,000 together.
    pub arms: Vec<Arm>,
}

/// One arm of a split.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Arm {
    /// Name of the arm, unique in the split.
    pub name: ArmName,
    /// Model that serves the arm's requests.
    pub model: ModelName,
    /// Version of the model; None for any.
    pub version: Option<ModelVersion>,
    /// Share of the requests, in thousandths.
    pub weight_permille: u16,
}
