//! What a model's name stands for.

use serde::{Deserialize, Serialize};
use spillway_types::ModelName;

/// What a model's name stands for, and what stands in for it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Model {
    /// The model that requests for this name are for, if it is an alias.
    pub alias_of: Option<ModelName>,
    /// Models to try instead, in this order, when no replica of this one takes a request.
    pub fallbacks: Vec<ModelName>,
}
